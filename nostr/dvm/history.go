package dvm

import (
	"cmp"
	"fmt"
	"time"
)

// History is what happened to a job. [Answers] computes the events of the job from
// it. It only grows: attempts are added, the last attempt is completed, and finally
// the outcome is set.
type History struct {
	MaxRetries int       `json:"max_retries"` // allowed by the policy; negative means no limit
	Attempts   []Attempt `json:"attempts,omitempty"`
	Outcome    *Outcome  `json:"outcome,omitempty"` // nil while the job is not over
}

// Attempt is one attempt of a job.
type Attempt struct {
	Number   int           `json:"number,omitempty"` // among the attempts that count, from 1; 0 means its place in the list
	Started  time.Time     `json:"started"`
	Ended    time.Time     `json:"ended,omitzero"`  // zero while it runs
	Error    string        `json:"error,omitempty"` // how it failed, as in the local log
	TimedOut bool          `json:"timed_out,omitempty"`
	Limit    time.Duration `json:"limit_ns,omitempty"` // the timeout that it exceeded; 0 means the request's timeout
	Stuck    bool          `json:"stuck,omitempty"`    // the attempt did not stop within the grace period
	Retry    bool          `json:"retry,omitempty"`    // another one follows, after Wait
	Wait     time.Duration `json:"wait_ns,omitempty"`
	Progress []Progress    `json:"progress,omitempty"` // in the order of their times

	// Lost means that the process ended during the attempt. Such an attempt does
	// not count as a retry, and is published only if nothing else explains why the
	// job failed.
	Lost bool `json:"lost,omitempty"`
}

// Progress is the progress of an attempt.
type Progress struct {
	At      time.Time     `json:"at"`
	Percent int           `json:"percent"`          // 0 to 100
	ETA     time.Duration `json:"eta_ns,omitempty"` // 0 means unknown
	Text    string        `json:"text,omitempty"`
}

// State is how a job ended.
type State string

// The states. Failed and refused jobs both have the status error in events,
// because NIP-90 has no other.
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
	Partial bool      `json:"partial,omitempty"` // the result is not complete
	Code    string    `json:"code,omitempty"`    // code of a failure; empty means TIMEOUT or RETRY_EXHAUSTED, whichever applies
	Message string    `json:"message,omitempty"` // empty means the last attempt's error, or "cancelled"
}

// Metadata describes the retries of a job for its customer.
type Metadata struct {
	AttemptNumber  int     `json:"attemptNumber"`  // number of the last attempt, from 0
	MaxRetries     int     `json:"maxRetries"`     // -1 for no limit
	LastError      string  `json:"lastError"`      // sanitised; empty if there was none
	BackoffHistory []int64 `json:"backoffHistory"` // the waits, in milliseconds; never nil
}

// Metadata returns the description of the retries for the customer.
func (h *History) Metadata(r *Request) Metadata {
	m := Metadata{MaxRetries: max(h.MaxRetries, -1), BackoffHistory: []int64{}}
	number := 0
	var failed *Attempt // the last failed one; sanitising a text is slow
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

// text returns the sanitised failure of the attempt; empty if it did not fail.
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

// message returns why the job failed, sanitised.
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
