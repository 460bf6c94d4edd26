package retry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/enum"
)

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	AttemptStarted EventKind = iota + 1 // an attempt began

	AttemptFailed   // an attempt failed; Err is the failure
	Waiting         // a wait began; Delay is its length, Until its end, By what set it
	Succeeded       // the call, the step or the run succeeded
	GaveUp          // the call, the step or the run gave up; Reason says why, Err is the last failure
	HookFailed      // a hook or an observer returned an error or panicked; Err has it
	HedgeStarted    // a hedger started a second attempt beside a slow one
	AttemptStuck    // an attempt did not return after its context ended
	BreakerOpened   // a breaker opened; Delay is for how long
	BreakerHalfOpen // a breaker lets probes through
	BreakerClosed   // a breaker closed
	RunStarted      // a durable run was accepted; Note says who started it
	AttemptLost     // the process ended during the attempt
	Progressed      // the attempt reported progress; Note has it
	Canceled        // a run was canceled; Note says by whom
	Resumed         // an operator resumed a run, a schedule or a workflow, or ended a wait; Note has the details
	NeedsHandler    // a step waits for a process that has its handler; Note has the handler's name
	Paused          // an operator paused a run, a schedule or a workflow; Note has the details
	FailedOver      // the call continues with another destination; Note says which and why
	StormBegan      // retries multiply the load on Name beyond the normal; Note says how much
	StormEnded      // the load from retries is normal again
	StartRefused    // a scheduled start of Name was rejected; Err says why, Note names the schedule
	Signaled        // a run got a signal; Note has its name and sender
	Asked           // a run asks the question Step; Note has it with its choices, Until is its deadline
	Undoing         // a run undoes its operations before it ends; Note says why
)

var eventNames = [...]string{
	"", "attempt-started", "attempt-failed", "waiting", "succeeded", "gave-up", "hook-failed",
	"hedge-started", "attempt-stuck", "breaker-opened", "breaker-half-open", "breaker-closed",
	"run-started", "attempt-lost", "progress", "canceled", "resumed", "needs-handler", "paused",
	"failed-over", "storm-began", "storm-ended", "start-refused", "signaled", "asked", "undoing",
}

// String returns the kind's name, as used in JSON.
func (k EventKind) String() string { return enum.Name(eventNames[:], k, "retry.EventKind") }

// Event is something that happened to a call. All runners emit this type; logs,
// metrics, pages and notifications are made from it. Fields that do not apply to a
// kind are zero.
type Event struct {
	Kind     EventKind     // what happened
	Time     time.Time     // when it happened
	Name     string        // name of the workflow, the runner or the breaker
	Call     uint64        // identifies the call: a count of the runner, or what WithCallID sets
	Attempt  int           // number of the attempt, from 1
	Attempts int           // the policy's limit; -1, which is Unlimited, if it has none
	Delay    time.Duration // the wait, or how long a breaker is open
	By       Source        // source of the wait
	Until    time.Time     // when the wait ends
	Elapsed  time.Duration // time the call has taken so far
	Prev     time.Duration // the last delay that the policy computed; part of State
	Reason   Reason        // why the runner gave up
	Err      error         // the failure
	Run      string        // id of the durable run
	Step     string        // name of the run's step; empty when the event is about the run
	Note     string        // further details; see the kinds
}

// State returns the state of the call at the event. Store it and pass it to
// [Runner.Resume] to continue the call.
func (e Event) State() State {
	return State{Attempt: e.Attempt, Prev: e.Prev, Elapsed: e.Elapsed}
}

// wireEvent is the JSON form of an Event. It is a stored format, so fields may be
// added but not changed or removed. testdata/event.schema.json describes it.
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

// UnmarshalJSON reads the event's JSON form. Err becomes a plain error that has only
// the text of the original.
func (e *Event) UnmarshalJSON(data []byte) error {
	var w wireEvent
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	kind, ok1 := enum.Parse[EventKind](eventNames[:], w.Kind)
	reason, ok2 := enum.Parse[Reason](reasonNames[:], w.Reason)
	by, ok3 := enum.Parse[Source](sourceNames[:], w.By)
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

// BreakerEvents returns an observer for [breaker.WithObserver] that converts a
// breaker's events to type Event and passes them to observe.
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
