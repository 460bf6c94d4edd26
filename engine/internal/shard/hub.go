package shard

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/info"
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
