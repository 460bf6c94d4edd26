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

// Event is a retry.Event with its place in the stream of all events.
type Event struct {
	Seq uint64 // grows by one; from 1 in each process
	retry.Event
	Member string // the process of the cluster that it happened in; empty for this one
}

// backlog is how many events are kept for readers that come late or are slow.
const backlog = 8192

// hub passes events on. It never waits for a reader: a slow one misses some, and gets
// their number.
type hub struct {
	mu      sync.Mutex
	ring    []Event // the last ones; it grows up to backlog
	seq     uint64
	changed chan struct{} // closed at the next event
	closed  bool
	wanted  atomic.Bool // there is or was a reader
}

func (h *hub) init() { h.changed = make(chan struct{}) }

// eventBatch has the events of a turn that is not stored yet.
type eventBatch struct {
	hub     *hub
	pending []retry.Event
}

// add adds an event, to be published when what the turn has decided is stored.
func (b *eventBatch) add(ev retry.Event) {
	if b.hub.wanted.Load() {
		b.pending = append(b.pending, ev)
	}
}

// note makes the events of a record, to be published when it is stored.
func (b *eventBatch) note(rec *machine.Record, run *machine.Run) {
	if !b.hub.wanted.Load() {
		return
	}
	ev := retry.Event{Time: time.Unix(0, rec.At), Name: run.Def.Name, Run: rec.Run.String()}
	add := func(kind retry.EventKind) *retry.Event {
		ev.Kind = kind
		b.pending = append(b.pending, ev)
		return &b.pending[len(b.pending)-1]
	}
	step := &run.Def.Steps[rec.Step]
	inStep := func(kind retry.EventKind) *retry.Event {
		p := add(kind)
		p.Step, p.Attempt, p.Attempts = step.Name, rec.Attempt, limit(step.Policy)
		return p
	}
	switch rec.Kind {
	case machine.Started:
		add(retry.RunStarted).Note = run.Source()
	case machine.Begun:
		inStep(retry.AttemptStarted)
	case machine.Done:
		inStep(retry.Succeeded)
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
	case machine.Late:
		p := inStep(retry.AttemptFailed)
		p.Err, p.Note = errors.New(rec.Text), "the run was over"
	default:
	}
	switch rec.Ends {
	case machine.Succeeded:
		add(retry.Succeeded)
	case machine.Dead:
		p := add(retry.GaveUp)
		p.Reason = run.Reason
		if rec.Text != "" {
			p.Err = errors.New(rec.Text)
		}
	case machine.Canceled, machine.Undecided:
	}
}

// verdict adds what follows an attempt.
func verdict(add func(retry.EventKind) *retry.Event, rec *machine.Record) {
	if rec.Reason != 0 {
		p := add(retry.GaveUp)
		p.Reason = rec.Reason
		if rec.Text != "" {
			p.Err = errors.New(rec.Text)
		}
		return
	}
	p := add(retry.Waiting)
	p.Delay, p.By, p.Until, p.Prev, p.Note = rec.Delay, rec.By, time.Unix(0, rec.Due), rec.Prev, ""
	if rec.Kind != machine.Failed {
		p.Note = rec.Text
	}
}

// publish passes on what is stored now.
func (b *eventBatch) publish() {
	b.hub.publish(b.pending, "")
	clear(b.pending)
	b.pending = b.pending[:0]
}

// Tell puts an event of something beside the engine into the stream, so that
// there is one for all that a process does. It is passed on and not stored.
func (e *Engine) Tell(ev retry.Event) {
	if e.hub.wanted.Load() {
		e.hub.publish([]retry.Event{ev}, "")
	}
}

// publish puts events of a member of the cluster at the end of the stream; the member
// without a name is this process.
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

// add puts an event at the end. It needs the lock.
func (h *hub) add(ev Event) {
	h.seq++
	ev.Seq = h.seq
	if len(h.ring) < backlog {
		h.ring = append(h.ring, ev)
	} else {
		h.ring[(h.seq-1)%backlog] = ev
	}
}

// wake wakes the readers, because there is more. It needs the lock.
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

// after returns events after the sequence, how many were missed, and a channel
// that is closed when there are more.
func (h *hub) after(seq uint64, most int) (list []Event, missed uint64, more <-chan struct{}, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.seq - uint64(len(h.ring)) + 1
	if seq > h.seq {
		seq = first - 1 // of another process
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

// Events yields what happens, from the event after the given one on: 0 for all
// that are still there (none are kept before there is a reader or an observer),
// [Now] for those after the call. It ends with the context or the
// engine. The number is how many were missed before the event because the reader
// was too slow. In a cluster these are the events of all processes; of the others,
// as many as can be followed.
func (e *Engine) Events(ctx context.Context, after uint64) iter.Seq2[Event, uint64] {
	if e.cluster != nil {
		e.cluster.follower.watch()
	}
	return e.hub.events(ctx, after)
}

func (h *hub) events(ctx context.Context, after uint64) iter.Seq2[Event, uint64] {
	h.wanted.Store(true)
	if after == Now {
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

// Now as the place in the stream of events stands for its end.
const Now = ^uint64(0)

// observe shows all events to the observer.
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

// show shows an event to the observer, whose panics are its own.
func (e *Engine) show(ev retry.Event) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("the observer panicked", "panic", p)
		}
	}()
	e.cfg.Observer(ev)
}
