package retry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	AttemptStarted  EventKind = iota + 1
	AttemptFailed             // Err says how
	Waiting                   // until Until, for Delay, set by By
	Succeeded                 // the call is over
	GaveUp                    // the call is over; Reason says why
	HookFailed                // a hook or an observer returned an error or panicked; Err has it
	HedgeStarted              // a second attempt was started beside a slow one
	AttemptStuck              // an attempt did not end when told to
	BreakerOpened             // Delay says for how long
	BreakerHalfOpen           // probes are let through
	BreakerClosed
	RunStarted   // a durable run was accepted
	AttemptLost  // the process ended in the attempt
	Progressed   // Note says how far the attempt is
	Canceled     // a run was canceled; Note says by whom
	Resumed      // a run or a wait was put back to work by hand; Note says by whom
	NeedsHandler // a step waits for a program that knows it; Note says which
	Paused       // a run was paused by hand; Note says by whom
	FailedOver   // another destination takes the call over; Note says which, and why
	StormBegan   // retries multiply the load of Name beyond what is normal; Note says how much
	StormEnded   // they do so no more
	StartRefused // a scheduled start of Name was refused; Err says why, Note by which schedule it was due
)

var eventNames = [...]string{
	"", "attempt-started", "attempt-failed", "waiting", "succeeded", "gave-up", "hook-failed",
	"hedge-started", "attempt-stuck", "breaker-opened", "breaker-half-open", "breaker-closed",
	"run-started", "attempt-lost", "progress", "canceled", "resumed", "needs-handler", "paused",
	"failed-over", "storm-began", "storm-ended", "start-refused",
}

// String returns the kind's name, as it stands in JSON.
func (k EventKind) String() string { return name(eventNames[:], k) }

// Event is something that happened to a call. Every runner emits this one
// shape; logs, metrics, pages and notifications are readers of it. Fields that
// say nothing about a kind are zero.
type Event struct {
	Kind     EventKind
	Time     time.Time
	Name     string        // the runner's or the breaker's name
	Call     uint64        // tells the calls of one runner apart
	Attempt  int           // number of the attempt, from 1
	Attempts int           // the policy's limit; Unlimited for none
	Delay    time.Duration // the wait, or how long a breaker is open
	By       Source        // who set the wait
	Until    time.Time     // when the wait ends
	Elapsed  time.Duration // time the call has taken so far
	Prev     time.Duration // the last delay computed by the policy; part of State
	Reason   Reason        // why the runner gave up
	Err      error         // the failure
	Run      string        // id of the durable run
	Step     string        // name of the run's step; empty when the event is about the run
	Note     string        // what else there is to say
}

// State returns the state of the call at the event, to be stored and given to
// [Runner.Resume].
func (e Event) State() State {
	return State{Attempt: e.Attempt, Prev: e.Prev, Elapsed: e.Elapsed}
}

// wireEvent is the JSON form of an Event. It is a stored format: fields are
// only added. testdata/event.schema.json describes it.
type wireEvent struct {
	Kind     string     `json:"kind"`
	Time     time.Time  `json:"time"`
	Name     string     `json:"name,omitempty"`
	Call     uint64     `json:"call,omitempty"`
	Attempt  int        `json:"attempt,omitempty"`
	Attempts int        `json:"attempts,omitempty"`
	Delay    int64      `json:"delay_ns,omitempty"`
	By       string     `json:"delay_by,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Elapsed  int64      `json:"elapsed_ns,omitempty"`
	Prev     int64      `json:"prev_ns,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Error    string     `json:"error,omitempty"`
	Run      string     `json:"run,omitempty"`
	Step     string     `json:"step,omitempty"`
	Note     string     `json:"note,omitempty"`
}

// MarshalJSON writes the event's JSON form.
func (e Event) MarshalJSON() ([]byte, error) {
	w := wireEvent{
		Kind: e.Kind.String(), Time: e.Time, Name: e.Name, Call: e.Call, Attempt: e.Attempt, Attempts: e.Attempts,
		Delay: int64(e.Delay), Elapsed: int64(e.Elapsed), Prev: int64(e.Prev), Reason: e.Reason.String(),
		Run: e.Run, Step: e.Step, Note: e.Note,
	}
	if e.Kind == Waiting {
		w.By = e.By.String()
		w.Until = &e.Until
	}
	if e.Err != nil {
		w.Error = e.Err.Error()
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the event's JSON form. The error comes back as its text.
func (e *Event) UnmarshalJSON(data []byte) error {
	var w wireEvent
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	kind, ok1 := valueOf[EventKind](eventNames[:], w.Kind)
	reason, ok2 := valueOf[Reason](reasonNames[:], w.Reason)
	by, ok3 := valueOf[Source](sourceNames[:], w.By)
	if !ok1 || !ok2 || !ok3 && w.By != "" || kind == 0 {
		return fmt.Errorf("event: unknown kind %q, reason %q or delay_by %q", w.Kind, w.Reason, w.By)
	}
	*e = Event{
		Kind: kind, Time: w.Time, Name: w.Name, Call: w.Call, Attempt: w.Attempt, Attempts: w.Attempts,
		Delay: time.Duration(w.Delay), By: by, Elapsed: time.Duration(w.Elapsed), Prev: time.Duration(w.Prev), Reason: reason,
		Run: w.Run, Step: w.Step, Note: w.Note,
	}
	if w.Until != nil {
		e.Until = *w.Until
	}
	if w.Error != "" {
		e.Err = errors.New(w.Error)
	}
	return nil
}

// BreakerEvents turns a breaker's events into the one shape, for
// [breaker.WithObserver].
func BreakerEvents(observe func(Event)) func(breaker.Event) {
	return func(b breaker.Event) {
		e := Event{Time: time.Now(), Name: b.Name}
		switch b.To {
		case breaker.Open, breaker.ForcedOpen:
			e.Kind, e.Delay = BreakerOpened, b.OpenFor
		case breaker.HalfOpen:
			e.Kind = BreakerHalfOpen
		case breaker.Closed, breaker.ForcedClosed:
			e.Kind = BreakerClosed
		}
		observe(e)
	}
}
