package dvm

import (
	"cmp"
	"fmt"
	"time"
)

// History is what happened to a job. [Answers] turns it into events. It only grows:
// attempts are added, the last one is completed, and after the outcome nothing
// follows.
type History struct {
	MaxRetries int       `json:"max_retries"` // that the policy allows; negative for no limit
	Attempts   []Attempt `json:"attempts,omitempty"`
	Outcome    *Outcome  `json:"outcome,omitempty"` // nil while it goes on
}

// Attempt is one try.
type Attempt struct {
	Number   int           `json:"number,omitempty"` // of the attempts that count, from 1; 0 means its place in the list
	Started  time.Time     `json:"started"`
	Ended    time.Time     `json:"ended,omitzero"`  // zero while it runs
	Error    string        `json:"error,omitempty"` // how it failed, as the local log has it
	TimedOut bool          `json:"timed_out,omitempty"`
	Limit    time.Duration `json:"limit_ns,omitempty"` // that it ran into; 0 means the request's timeout
	Stuck    bool          `json:"stuck,omitempty"`    // it did not stop when it was told to
	Retry    bool          `json:"retry,omitempty"`    // another one follows, after Wait
	Wait     time.Duration `json:"wait_ns,omitempty"`
	Progress []Progress    `json:"progress,omitempty"` // in the order of their times

	// Lost says that the process ended in the attempt. It does not count: it is no
	// retry, and no customer hears of it, unless there is nothing else to be said
	// about why the job failed.
	Lost bool `json:"lost,omitempty"`
}

// Progress says how far an attempt is.
type Progress struct {
	At      time.Time     `json:"at"`
	Percent int           `json:"percent"`          // 0 to 100
	ETA     time.Duration `json:"eta_ns,omitempty"` // 0 means that nobody knows
	Text    string        `json:"text,omitempty"`
}

// State is how a job ended.
type State string

// The states. What is failed or refused here has the status error in events, because
// NIP-90 has no other.
const (
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled" // there is no result
	Refused   State = "refused"   // it was never run
)

// The codes of a failure.
const (
	CodeTimeout   = "TIMEOUT"         // the last attempt timed out
	CodeExhausted = "RETRY_EXHAUSTED" // the policy allows no further attempt
	CodePermanent = "PERMANENT"       // another attempt would fail the same way
	CodeInvalid   = "INVALID_REQUEST"
	CodeOverload  = "OVERLOADED"
	CodePayment   = "PAYMENT_REQUIRED" // the bid is below the price
)

// Outcome is how a job ended.
type Outcome struct {
	State   State     `json:"state"`
	At      time.Time `json:"at"`
	Content string    `json:"content,omitempty"` // the result
	Partial bool      `json:"partial,omitempty"` // the result is not all that was asked for
	Code    string    `json:"code,omitempty"`    // of a failure; empty means TIMEOUT or RETRY_EXHAUSTED, whichever is true
	Message string    `json:"message,omitempty"` // empty means what the last attempt said, or "cancelled"
}

// Metadata is what a customer is told about the retries of a job.
type Metadata struct {
	AttemptNumber  int     `json:"attemptNumber"`  // of the last attempt, from 0
	MaxRetries     int     `json:"maxRetries"`     // -1 for no limit
	LastError      string  `json:"lastError"`      // fit for the public; empty if there was none
	BackoffHistory []int64 `json:"backoffHistory"` // the waits, in milliseconds; never nil
}

// Metadata returns what a customer is told about the retries.
func (h *History) Metadata(r *Request) Metadata {
	m := Metadata{MaxRetries: max(h.MaxRetries, -1), BackoffHistory: []int64{}}
	number := 0
	var failed *Attempt // the last that did; to make a text public takes a while
	for i := range h.Attempts {
		a := &h.Attempts[i]
		if a.Lost {
			continue
		}
		number = cmp.Or(max(a.Number, 0), number+1)
		if a.TimedOut || a.Error != "" {
			failed = a
		}
		if a.Retry {
			m.BackoffHistory = append(m.BackoffHistory, a.Wait.Milliseconds())
		}
	}
	m.AttemptNumber = max(number-1, 0)
	if failed != nil {
		m.LastError = failed.text(r)
	}
	return m
}

// counted returns the last attempt that counts, nil if there is none.
func (h *History) counted() *Attempt {
	for i := len(h.Attempts) - 1; i >= 0; i-- {
		if a := &h.Attempts[i]; !a.Lost {
			return a
		}
	}
	return nil
}

// text says in public how the attempt failed; empty if it did not.
func (a *Attempt) text(r *Request) string {
	switch {
	case !a.TimedOut && a.Error == "":
		return ""
	case !a.TimedOut:
		return cmp.Or(Sanitise(a.Error), "unknown error")
	}
	limit := a.Limit
	if limit <= 0 {
		limit = r.Timeout
	}
	text := fmt.Sprintf("Operation timed out after %dms", limit.Milliseconds())
	if a.Stuck {
		text += " and did not stop"
	}
	return text
}

// code returns the code of a failure.
func (h *History) code() string {
	last := h.counted()
	switch o := h.Outcome; {
	case o.State == Failed && last != nil && last.TimedOut:
		return CodeTimeout
	case o.Code != "":
		return o.Code
	}
	return CodeExhausted
}

// message says in public why the job failed.
func (h *History) message(r *Request) string {
	if text := Sanitise(h.Outcome.Message); text != "" {
		return text
	}
	if a := h.counted(); a != nil {
		if text := a.text(r); text != "" {
			return text
		}
	}
	if len(h.Attempts) > 0 && h.Attempts[len(h.Attempts)-1].Lost {
		return "The provider was interrupted"
	}
	return "The provider gives no reason"
}
