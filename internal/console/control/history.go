package control

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// History returns the events of a run so far, in order of time. It builds them from the stored
// notes and attempts of the run, so that they are the same after a restart of the server.
func History(i *engine.Info) []Event {
	f := &history{info: i}
	for _, n := range i.Notes {
		f.addNote(n)
	}
	for k := range i.Steps {
		f.addStep(&i.Steps[k])
	}
	slices.SortStableFunc(f.list, func(a, b Event) int { return a.Time.Compare(b.Time) })
	f.addEnd()
	return f.list
}

// history collects the events of a run.
type history struct {
	info *engine.Info
	list []Event
}

func (f *history) add(e retry.Event, number int) {
	e.Name, e.Run = f.info.Workflow, f.info.ID
	f.list = append(f.list, Event{Message: Describe(&e, number), Event: e})
}

// noteKinds maps notes of a run to kinds of events. It does not contain the notes about the end of
// a run, for which addEnd adds the event, and notes that have no event ("postponed", "reset").
var noteKinds = map[string]retry.EventKind{
	"started": retry.RunStarted, "canceled": retry.Canceled, "parked": retry.NeedsHandler,
	"retried": retry.Resumed, "started now": retry.Resumed, "unparked": retry.Resumed,
	"paused": retry.Paused, "resumed": retry.Resumed, "signal": retry.Signaled, "undoing": retry.Undoing,
}

// addNote adds the event for a note of the run, if its kind is in noteKinds.
func (f *history) addNote(n engine.Note) {
	if kind, ok := noteKinds[n.What]; ok {
		f.add(retry.Event{Kind: kind, Time: n.At, Step: n.Step, Note: n.Text}, 0)
	}
}

// addStep adds the events of the attempts of a step, and its progress if an attempt is running.
func (f *history) addStep(s *engine.StepInfo) {
	limit := 1
	if p, err := retry.Parse(s.Policy); err == nil {
		limit = max(p.Attempts, 1)
		if p.Attempts == retry.Unlimited {
			limit = retry.Unlimited
		}
	}
	if s.Question != nil && s.Called != nil {
		e := retry.Event{Kind: retry.Asked, Time: *s.Called, Step: s.Name, Note: s.Question.String()}
		if s.Next != nil {
			e.Until = *s.Next
		}
		f.add(e, 0)
	}
	failed := 0
	since := time.Time{}
	for _, a := range s.Attempts {
		if again := f.retriedBefore(a.Started); again.After(since) {
			failed, since = 0, again
		}
		base := retry.Event{Step: s.Name, Attempt: a.Number, Attempts: limit}
		if a.Outcome == "failed" {
			failed++
		}
		f.addAttempt(base, &a, failed)
	}
	if last := len(s.Attempts) - 1; last >= 0 && s.Attempts[last].Outcome == "running" && len(s.Progress) > 0 {
		f.add(retry.Event{
			Kind: retry.Progressed, Time: s.Attempts[last].Started, Step: s.Name, Attempt: s.Attempts[last].Number,
			Attempts: limit, Note: string(s.Progress),
		}, 0)
	}
}

// retriedBefore returns the time of the last retry of the run that is not after t; zero if there is
// none. A retry resets the number of failed attempts.
func (f *history) retriedBefore(t time.Time) (at time.Time) {
	for _, n := range f.info.Notes {
		if n.What == "retried" && !n.At.After(t) && n.At.After(at) {
			at = n.At
		}
	}
	return at
}

// addAttempt adds the events of an attempt and of the wait after it. base has the fields that these
// events share. failed is how many attempts have failed since the last retry of the run.
func (f *history) addAttempt(base retry.Event, a *engine.AttemptInfo, failed int) {
	add := func(kind retry.EventKind, at time.Time, change func(*retry.Event)) {
		e := base
		e.Kind, e.Time = kind, at
		if change != nil {
			change(&e)
		}
		f.add(e, failed)
	}
	fail := func(e *retry.Event) { e.Err = errors.New(cmp.Or(a.Error, "no reason given")) }
	add(retry.AttemptStarted, a.Started, nil)
	if a.Ended == nil {
		return
	}
	at := *a.Ended
	switch a.Outcome {
	case "succeeded":
		add(retry.Succeeded, at, nil)
	case "failed":
		add(retry.AttemptFailed, at, fail)
		if text := overdue(f.info, at); text != "" && timedOut(a.Error) != "" {
			f.list[len(f.list)-1].Message = text // shows the timeout of the run, not the part of it that this attempt had
		}
	case "late":
		add(retry.AttemptFailed, at, func(e *retry.Event) { fail(e); e.Note = "the run was over" })
	case "lost":
		add(retry.AttemptLost, at, nil)
	}
	if a.Wait != nil {
		add(retry.Waiting, at, func(e *retry.Event) {
			e.Delay, e.By, e.Until = a.Wait.Delay, sourceOf(a.Wait.By), at.Add(a.Wait.Delay)
			if a.Outcome == "failed" {
				fail(e)
			} else {
				e.Note = a.Error
			}
		})
		if a.Wait.Woken != "" {
			add(retry.Resumed, a.Wait.Until, func(e *retry.Event) { e.Note = a.Wait.Woken })
		}
	}
	if a.Reason != "" {
		add(retry.GaveUp, at, func(e *retry.Event) { fail(e); e.Reason = reasonOf(a.Reason) })
	}
}

// addEnd adds the event for the end of a run that succeeded or is dead.
func (f *history) addEnd() {
	i := f.info
	if i.Ended == nil {
		return
	}
	switch i.State {
	case "succeeded":
		f.add(retry.Event{Kind: retry.Succeeded, Time: *i.Ended}, 0)
	case "dead", "replaced":
		e := retry.Event{Kind: retry.GaveUp, Time: *i.Ended, Reason: reasonOf(i.Reason)}
		if i.Error != "" {
			e.Err = errors.New(i.Error)
		}
		f.add(e, 0)
		if text := TimeoutText(i); text != "" {
			f.list[len(f.list)-1].Message = text
		}
	}
}

// sourceOf returns the source of a wait by its name; ByPolicy for an unknown name.
func sourceOf(name string) retry.Source {
	for s := retry.ByPolicy; s <= retry.ByEngine; s++ {
		if s.String() == name {
			return s
		}
	}
	return retry.ByPolicy
}

// reasonOf returns the reason with the name; 0 for an unknown name.
func reasonOf(name string) retry.Reason {
	r, _ := retry.ParseReason(name)
	return r
}
