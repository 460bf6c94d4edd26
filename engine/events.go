package engine

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// Event is a retry.Event with its sequence number in the event stream of the process.
type Event struct {
	Seq uint64 // sequence number; begins at 1 in each process
	retry.Event
	Member string // id of the cluster member in which the event happened; "" for this process
}

// backlog is how many events are kept in memory for slow and late readers.
const backlog = 8192

// hub delivers events to readers. It never waits for a reader: a reader that is too slow
// misses events, and gets the number of missed events.
type hub struct {
	mu      sync.Mutex
	ring    []Event       // ring buffer of the last events; it grows up to backlog
	seq     uint64        // sequence number of the last event
	changed chan struct{} // closed at the next event, and replaced by a new channel
	closed  bool
	wanted  atomic.Bool // there is or was a reader; events are dropped before the first one
}

func (h *hub) init() { h.changed = make(chan struct{}) }

// eventBatch collects the events of a turn until the turn is stored.
type eventBatch struct {
	hub     *hub
	pending []retry.Event
}

// add adds an event, to be published when the turn is stored.
func (b *eventBatch) add(ev retry.Event) {
	if b.hub.wanted.Load() {
		b.pending = append(b.pending, ev)
	}
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
	ev := retry.Event{Time: time.Unix(0, rec.At), Name: run.Def.Name, Run: rec.Run.String()}
	add := func(kind retry.EventKind) *retry.Event {
		ev.Kind = kind
		b.pending = append(b.pending, ev)
		return &b.pending[len(b.pending)-1]
	}
	inStep := func(kind retry.EventKind) *retry.Event {
		p := add(kind)
		p.Step, p.Attempt, p.Attempts = step.name, rec.Attempt, step.attempts
		return p
	}
	switch rec.Kind {
	case machine.Started:
		add(retry.RunStarted).Note = run.Source()
	case machine.Begun:
		if !run.IsFunction(rec.Step) { // a call of a function is no attempt
			inStep(retry.AttemptStarted)
		}
	case machine.Done:
		if !run.IsFunction(rec.Step) {
			inStep(retry.Succeeded)
		}
	case machine.Failed:
		inStep(retry.AttemptFailed).Err = errors.New(rec.Text)
		verdict(inStep, rec)
	case machine.Lost:
		inStep(retry.AttemptLost)
		verdict(inStep, rec)
	case machine.Snoozed, machine.Limited, machine.Postponed:
		verdict(inStep, rec)
	case machine.Progress:
		inStep(retry.Progressed).Note = string(rec.Data)
	case machine.Parked:
		inStep(retry.NeedsHandler).Note = rec.Text
	case machine.Cancel:
		add(retry.Canceled).Note = rec.Text
	case machine.Retry, machine.Freed:
		add(retry.Resumed).Note = rec.Text
	case machine.Held:
		add(retry.Paused).Note = rec.Text
	case machine.Woken:
		inStep(retry.Resumed).Note = rec.Text
	case machine.Signaled:
		p := inStep(retry.Signaled)
		p.Note = signalNote(rec.Text)
	case machine.Called:
		if rec.Attempt > 0 {
			p := inStep(retry.AttemptStarted)
			p.Step, p.Attempts = label(rec.Text), limit(run.StepDef(rec.Step).Policy)
		}
		if q, ok := questionOf(rec); ok {
			p := inStep(retry.Asked)
			p.Step, p.Note = label(rec.Text), q.String()
			if rec.Due != 0 {
				p.Until = time.Unix(0, rec.Due)
			}
		}
	case machine.Undoing:
		add(retry.Undoing).Note = rec.Text
	case machine.Late:
		p := inStep(retry.AttemptFailed)
		p.Err, p.Note = errors.New(rec.Text), "the run was over"
	default:
	}
	switch rec.Ends {
	case machine.Succeeded:
		add(retry.Succeeded)
	case machine.Dead:
		p := gaveUp(add, run.Reason, rec)
		if rec.Kind == machine.Undone && p.Err == nil { // everything is undone, and the run ends with the error before that
			_, text, _ := run.Situation()
			p.Err = errors.New(text)
		}
	case machine.Canceled:
		if rec.Kind == machine.Undone {
			add(retry.Canceled)
		}
	case machine.Undecided:
	}
}

// verdict adds the event for the decision after an attempt: to give up, or to wait.
func verdict(add func(retry.EventKind) *retry.Event, rec *machine.Record) {
	if rec.Reason != 0 {
		gaveUp(add, rec.Reason, rec)
		return
	}
	p := add(retry.Waiting)
	p.Delay, p.By, p.Until, p.Prev, p.Note = rec.Delay, rec.By, time.Unix(0, rec.Due), rec.Prev, ""
	if rec.Kind != machine.Failed {
		p.Note = rec.Text
	}
}

func gaveUp(add func(retry.EventKind) *retry.Event, reason retry.Reason, rec *machine.Record) *retry.Event {
	p := add(retry.GaveUp)
	p.Reason = reason
	if rec.Text != "" {
		p.Err = errors.New(rec.Text)
	}
	return p
}

// publish publishes the events of the turn, which is stored now.
func (b *eventBatch) publish() {
	b.hub.publish(b.pending, "")
	clear(b.pending)
	b.pending = b.pending[:0]
}

// Tell adds an event that did not happen in the engine to the event stream, so that one
// stream has all events of the process. The event is not stored.
func (e *Engine) Tell(ev retry.Event) {
	if e.hub.wanted.Load() {
		e.hub.publish([]retry.Event{ev}, "")
	}
}

// publish adds events of a member of the cluster to the stream; "" stands for this process.
func (h *hub) publish(list []retry.Event, member string) {
	if len(list) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, ev := range list {
		h.add(Event{Event: ev, Member: member})
	}
	h.wake()
}

// add adds an event to the ring buffer. The caller must hold the lock.
func (h *hub) add(ev Event) {
	h.seq++
	ev.Seq = h.seq
	if len(h.ring) < backlog {
		h.ring = append(h.ring, ev)
	} else {
		h.ring[(h.seq-1)%backlog] = ev
	}
}

// wake wakes the readers. The caller must hold the lock.
func (h *hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.wake()
}

// after returns up to most events after a sequence number, how many events in between are not
// kept any more, a channel that is closed when there are more events, and whether the stream
// has ended.
func (h *hub) after(seq uint64, most int) (list []Event, missed uint64, more <-chan struct{}, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.seq - uint64(len(h.ring)) + 1
	if seq > h.seq {
		seq = first - 1 // the number is that of an earlier process: begin with the oldest event
	}
	if seq+1 < first {
		missed = first - 1 - seq
		seq = first - 1
	}
	for s := seq + 1; s <= h.seq && len(list) < most; s++ {
		list = append(list, h.ring[(s-1)%backlog])
	}
	return list, missed, h.changed, h.closed
}

// Events yields the events after the one with sequence number after. 0 means all events
// that are still in memory: none are kept before the first reader or observer. [NewEvents] means
// only events that happen after the call. With each event it yields how many events before
// it were missed because the reader was too slow. It ends when the context ends or the
// engine stops. In a cluster it yields the events of all processes, but it may miss events
// of other processes.
func (e *Engine) Events(ctx context.Context, after uint64) iter.Seq2[Event, uint64] {
	if e.cluster != nil {
		e.cluster.follower.watch()
	}
	return e.hub.events(ctx, after)
}

func (h *hub) events(ctx context.Context, after uint64) iter.Seq2[Event, uint64] {
	h.wanted.Store(true)
	if after == NewEvents {
		h.mu.Lock()
		after = h.seq
		h.mu.Unlock()
	}
	return func(yield func(Event, uint64) bool) {
		after := after
		for {
			list, missed, more, closed := h.after(after, 256)
			for _, ev := range list {
				if !yield(ev, missed) {
					return
				}
				missed, after = 0, ev.Seq
			}
			if len(list) > 0 {
				continue
			}
			if closed {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	}
}

// NewEvents is the argument of [Engine.Events] for only new events.
const NewEvents = ^uint64(0)

// observe calls the observer with each event of this process, until the stream ends.
func (e *Engine) observe() {
	defer close(e.observing)
	for ev, missed := range e.hub.events(context.Background(), 0) {
		if missed > 0 {
			e.cfg.Logger.Warn("the observer was too slow", "events_missed", missed)
		}
		if ev.Member == "" {
			e.show(ev.Event)
		}
	}
}

// show calls the observer with an event. It logs a panic of the observer.
func (e *Engine) show(ev retry.Event) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("the observer panicked", "panic", p)
		}
	}()
	e.cfg.Observer(ev)
}
