package shard

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/describe"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

const (
	backlog    = 8192            // how many events are kept in memory for slow and late readers
	readAtOnce = 256             // most events that a reader gets at once
	FollowWait = 2 * time.Second // how long an answer to another process waits for a first event
)

// Hub delivers events to readers. It never waits for a reader: a reader that is too slow
// misses events, and gets the number of missed events.
type Hub struct {
	mu      sync.Mutex
	ring    []info.Event  // ring buffer of the last events; it grows up to backlog
	seq     uint64        // sequence number of the last event
	changed chan struct{} // closed at the next event, and replaced by a new channel
	closed  bool
	wanted  atomic.Bool // there is or was a reader; events are dropped before the first one
}

func (h *Hub) init() { h.changed = make(chan struct{}) }

// Publish adds events of a member of the cluster to the stream; "" stands for this process.
func (h *Hub) Publish(list []retry.Event, member string) {
	if len(list) == 0 || !h.wanted.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, ev := range list {
		h.seq++
		one := info.Event{Event: ev, Member: member, Seq: h.seq}
		if len(h.ring) < backlog {
			h.ring = append(h.ring, one)
		} else {
			h.ring[(h.seq-1)%backlog] = one
		}
	}
	h.wake()
}

// wake wakes the readers. The caller must hold the lock.
func (h *Hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Close ends the stream.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.wake()
}

// after returns events after a sequence number, how many events in between are not
// kept any more, a channel that is closed when there are more events, and whether the stream
// has ended.
func (h *Hub) after(seq uint64) (list []info.Event, missed uint64, more <-chan struct{}, closed bool) {
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
	for s := seq + 1; s <= h.seq && len(list) < readAtOnce; s++ {
		list = append(list, h.ring[(s-1)%backlog])
	}
	return list, missed, h.changed, h.closed
}

// Events yields the events after a sequence number, and before each how many were missed.
func (h *Hub) Events(ctx context.Context, after uint64) iter.Seq2[info.Event, uint64] {
	h.wanted.Store(true)
	if after == info.NewEvents {
		h.mu.Lock()
		after = h.seq
		h.mu.Unlock()
	}
	return func(yield func(info.Event, uint64) bool) {
		after := after
		for list, missed := h.next(ctx, after); len(list) > 0; list, missed = h.next(ctx, after) {
			for _, ev := range list {
				if !yield(ev, missed) {
					return
				}
				missed, after = 0, ev.Seq
			}
		}
	}
}

// next is after, and waits for an event if there is none. If it returns none, the stream or the context has ended.
func (h *Hub) next(ctx context.Context, seq uint64) (list []info.Event, missed uint64) {
	for {
		list, missed, more, closed := h.after(seq)
		if len(list) > 0 || closed {
			return list, missed
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, 0
		}
	}
}

// RemoteEvents is the answer of a process that another process asks for events.
type RemoteEvents struct {
	Events []retry.Event `json:"events,omitempty"`
	After  uint64        `json:"after"` // sequence number to ask from next time
}

// RemoteEvents returns events of this process after a sequence number, for another process.
// It waits up to followWait for the first event.
func (h *Hub) RemoteEvents(ctx context.Context, after uint64) *RemoteEvents {
	h.wanted.Store(true)
	if after == info.NewEvents {
		h.mu.Lock()
		defer h.mu.Unlock()
		return &RemoteEvents{After: h.seq}
	}
	ctx, cancel := context.WithTimeout(ctx, FollowWait)
	defer cancel()
	out := &RemoteEvents{After: after}
	for list, _ := h.next(ctx, after); len(list) > 0; list, _ = h.next(ctx, out.After) {
		for _, ev := range list {
			if out.After = ev.Seq; ev.Member == "" { // the caller asks other processes for their events itself
				out.Events = append(out.Events, ev.Event)
			}
		}
		if len(out.Events) > 0 {
			break
		}
	}
	return out
}

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
