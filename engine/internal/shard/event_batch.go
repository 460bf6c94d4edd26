package shard

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/describe"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// eventBatch collects the events of a turn until the turn is stored.
type eventBatch struct {
	hub     *Hub
	pending []retry.Event
}

// add adds an event, to be published when the turn is stored.
func (b *eventBatch) add(ev retry.Event) {
	if b.hub.wanted.Load() {
		b.pending = append(b.pending, ev)
	}
}

// addPause adds the event that what was paused or resumed: a workflow or one of its schedules.
func (b *eventBatch) addPause(isPause bool, at time.Time, workflow, what, by string) {
	ev := retry.Event{Kind: retry.Resumed, Time: at, Name: workflow, Note: strings.TrimSuffix(what+", by "+by, ", by ")}
	if isPause {
		ev.Kind = retry.Paused
	}
	b.add(ev)
}

// eventStep is the step of an event.
type eventStep struct {
	name     string
	attempts int // limit of its policy
}

// stepOf returns the step of the record, which is not applied yet.
func (b *eventBatch) stepOf(rec *machine.Record, m *machine.Machine) (s eventStep) {
	if !b.hub.wanted.Load() {
		return s
	}
	if run, ok := m.Run(rec.Run); ok && run.Step(rec.Step) != nil {
		s.name, s.attempts = run.StepName(rec.Step), limit(run.StepDef(rec.Step).Policy)
	}
	return s
}

// note adds the events that follow from a record.
func (b *eventBatch) note(rec *machine.Record, run *machine.Run, step eventStep) {
	if !b.hub.wanted.Load() {
		return
	}
	n := eventNote{
		batch: b, rec: *rec, run: run, step: step,
		common: retry.Event{Time: time.Unix(0, rec.At), Name: run.Def.Name, Run: rec.Run.String()},
	}
	n.ofRecord()
	n.ofEnd()
}

// eventNote adds the events that follow from one record.
type eventNote struct {
	batch  *eventBatch
	rec    machine.Record // by value: a pointer beside the event would move each record to the heap
	run    *machine.Run
	step   eventStep
	common retry.Event // what all these events have
}

// add adds an event of the run.
func (n *eventNote) add(kind retry.EventKind) *retry.Event {
	b := n.batch
	n.common.Kind = kind
	b.pending = append(b.pending, n.common)
	return &b.pending[len(b.pending)-1]
}

// inStep adds an event of a step.
func (n *eventNote) inStep(kind retry.EventKind) *retry.Event {
	p := n.add(kind)
	p.Step, p.Attempt, p.Attempts = n.step.name, n.rec.Attempt, n.step.attempts
	return p
}

// eventKinds has the events of the records that always have the same one.
var eventKinds = map[machine.Kind]retry.EventKind{
	machine.Begun: retry.AttemptStarted, machine.Done: retry.Succeeded, machine.Parked: retry.NeedsHandler, machine.Woken: retry.Resumed,
	machine.Cancel: retry.Canceled, machine.Retry: retry.Resumed, machine.Freed: retry.Resumed, machine.Held: retry.Paused, machine.Undoing: retry.Undoing,
}

// ofRecord adds the events of a record about the run, a step or an attempt. A call of a function is no attempt.
func (n *eventNote) ofRecord() {
	switch rec := &n.rec; rec.Kind {
	case machine.Started:
		n.add(retry.RunStarted).Note = n.run.Source()
	case machine.Cancel, machine.Retry, machine.Freed, machine.Held, machine.Undoing:
		n.add(eventKinds[rec.Kind]).Note = rec.Text
	case machine.Parked, machine.Woken:
		n.inStep(eventKinds[rec.Kind]).Note = rec.Text
	case machine.Begun, machine.Done:
		if !n.run.IsFunction(rec.Step) {
			n.inStep(eventKinds[rec.Kind])
		}
	case machine.Failed:
		n.inStep(retry.AttemptFailed).Err = errors.New(rec.Text)
		n.verdict()
	case machine.Lost:
		n.inStep(retry.AttemptLost)
		n.verdict()
	case machine.Snoozed, machine.Limited, machine.Postponed:
		n.verdict()
	case machine.Progress:
		n.inStep(retry.Progressed).Note = string(rec.Data)
	case machine.Signaled:
		n.inStep(retry.Signaled).Note = describe.SignalNote(rec)
	case machine.Called:
		n.ofCall()
	case machine.Late:
		p := n.inStep(retry.AttemptFailed)
		p.Err, p.Note = errors.New(rec.Text), "the run was over"
	default:
	}
}

// ofCall adds the events of the call of an operation.
func (n *eventNote) ofCall() {
	rec := &n.rec
	if rec.Begins() {
		p := n.inStep(retry.AttemptStarted)
		p.Step, p.Attempts = machine.OpName(rec.Text), limit(n.run.StepDef(rec.Step).Policy)
	}
	if q, ok := describe.QuestionOf(rec); ok {
		p := n.inStep(retry.Asked)
		p.Step, p.Note = machine.OpName(rec.Text), q.String()
		if rec.Due != 0 {
			p.Until = time.Unix(0, rec.Due)
		}
	}
}

// ofEnd adds the event of a record that ends the run.
func (n *eventNote) ofEnd() {
	switch n.rec.Ends {
	case machine.Succeeded:
		n.add(retry.Succeeded)
	case machine.Dead:
		p := n.gaveUp(n.add(retry.GaveUp), n.run.Reason)
		if n.rec.Kind == machine.Undone && p.Err == nil { // everything is undone, and the run ends with the error before that
			_, text, _ := machine.Situation(n.run)
			p.Err = errors.New(text)
		}
	case machine.Canceled:
		if n.rec.Kind == machine.Undone {
			n.add(retry.Canceled)
		}
	case machine.Undecided:
	}
}

// verdict adds the event for the decision after an attempt: to give up, or to wait.
func (n *eventNote) verdict() {
	rec := &n.rec
	if rec.Reason != 0 {
		n.gaveUp(n.inStep(retry.GaveUp), rec.Reason)
		return
	}
	p := n.inStep(retry.Waiting)
	p.Delay, p.By, p.Until, p.Prev = rec.Delay, rec.By, time.Unix(0, rec.Due), rec.Prev
	if rec.Kind != machine.Failed {
		p.Note = rec.Text
	}
}

// gaveUp sets the reason and the error of an event.
func (n *eventNote) gaveUp(p *retry.Event, reason retry.Reason) *retry.Event {
	p.Reason = reason
	if n.rec.Text != "" {
		p.Err = errors.New(n.rec.Text)
	}
	return p
}

// publish publishes the events of the turn, which is stored now.
func (b *eventBatch) publish() {
	b.hub.Publish(b.pending, "")
	clear(b.pending)
	b.pending = b.pending[:0]
}

// limit returns the number of attempts that a policy allows.
func limit(p retry.Policy) int { return cmp.Or(p.Attempts, 1) }
