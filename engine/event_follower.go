package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	followBatch  = 256                    // most events of another process in one answer
	followPause  = 100 * time.Millisecond // pause between two requests to the same process
	followWait   = 2 * time.Second        // how long the other process waits for a first event before it answers
	membersEvery = time.Second            // how often the list of members is read
)

// followPolicy is the retry policy for a member that does not answer.
var followPolicy = retry.Must("exponential(200ms..5s) attempts=unlimited")

// remoteEvents is the answer of a process that another process asks for events.
type remoteEvents struct {
	Events []retry.Event `json:"events,omitempty"`
	After  uint64        `json:"after"` // sequence number to ask from next time
}

// eventFollower adds the events of all other processes of a cluster to the event stream of
// this process.
type eventFollower struct {
	hub  *hub
	log  journal.Cluster
	stop context.Context // ends when the engine is closed

	watch     func()        // starts following; the first reader of events calls it
	watched   chan struct{} // closed by watch
	followers sync.WaitGroup
}

func (f *eventFollower) init(h *hub, log journal.Cluster, stop context.Context) {
	f.hub, f.log, f.stop = h, log, stop
	f.watched = make(chan struct{})
	f.watch = sync.OnceFunc(func() { close(f.watched) })
	f.followers.Go(f.run)
}

// run waits for the first reader of events. Then it follows the other processes until the
// engine is closed.
func (f *eventFollower) run() {
	select {
	case <-f.watched:
	case <-f.stop.Done():
		return
	}
	following := map[string]context.CancelFunc{}
	tick := time.NewTicker(membersEvery)
	defer tick.Stop()
	for {
		members, self := f.log.Members(), f.log.Member()
		for _, id := range members {
			if following[id] == nil && id != self {
				ctx, cancel := context.WithCancel(f.stop)
				following[id] = cancel
				f.followers.Go(func() { f.followMember(ctx, id) })
			}
		}
		for id, cancel := range following {
			if !slices.Contains(members, id) || id == self {
				cancel()
				delete(following, id)
			}
		}
		select {
		case <-tick.C:
		case <-f.stop.Done():
			for _, cancel := range following {
				cancel()
			}
			return
		}
	}
}

// followMember adds the events of one process to the stream, until the context ends.
func (f *eventFollower) followMember(ctx context.Context, id string) {
	after := NewEvents
	_ = followPolicy.Do(ctx, func(ctx context.Context) error { // unlimited attempts: the only error is that the context has ended
		for {
			h, err := f.askEvents(ctx, id, after)
			if err != nil {
				return err
			}
			after = h.After
			f.hub.publish(h.Events, id)
			select {
			case <-time.After(followPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// askEvents asks a member for its events after a sequence number.
func (f *eventFollower) askEvents(ctx context.Context, id string, after uint64) (*remoteEvents, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*followWait)
	defer cancel()
	a, err := askMember(ctx, f.log, id, &call{Op: opEvents, After: after})
	if err == nil && a.Events == nil {
		err = errors.New("an answer without events")
	}
	return a.Events, err
}

// perform answers requests for the events of the process.
func (f *eventFollower) perform(ctx context.Context, c *call) (a answer, err error) {
	if c.Op != opEvents {
		return a, errCall
	}
	a.Events = f.hub.remoteEvents(ctx, c.After)
	return a, nil
}

// remoteEvents returns events of this process after a sequence number, for another process.
// It waits up to followWait for the first event.
func (h *hub) remoteEvents(ctx context.Context, after uint64) *remoteEvents {
	h.wanted.Store(true)
	if after == NewEvents {
		h.mu.Lock()
		defer h.mu.Unlock()
		return &remoteEvents{After: h.seq}
	}
	wait := time.NewTimer(followWait)
	defer wait.Stop()
	out := &remoteEvents{After: after}
	for {
		list, _, more, closed := h.after(out.After, followBatch)
		for _, ev := range list {
			if out.After = ev.Seq; ev.Member == "" {
				out.Events = append(out.Events, ev.Event)
			}
		}
		if len(out.Events) > 0 || closed {
			return out
		}
		if len(list) > 0 {
			continue // events of other processes: the caller asks those processes itself
		}
		select {
		case <-more:
		case <-wait.C:
			return out
		case <-ctx.Done():
			return out
		}
	}
}
