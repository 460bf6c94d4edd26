package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	followBatch = 256                    // events of another process that are taken at once
	followPause = 100 * time.Millisecond // between batches: who watches has no more eyes
	followWait  = 2 * time.Second        // for the first of a batch
	lookAround  = time.Second            // how often it is looked for members
)

// followPolicy is how a member is waited for that does not answer.
var followPolicy = retry.Must("exponential(200ms..5s) attempts=unlimited")

// happened are events of a process on their way to another.
type happened struct {
	Events []retry.Event `json:"events,omitempty"`
	After  uint64        `json:"after"` // where to go on
}

// follow puts the events of all other processes into the stream of this one, once
// somebody reads it and until the engine is closed.
func (cl *cluster) follow() {
	select {
	case <-cl.watched:
	case <-cl.stop.Done():
		return
	}
	following := map[string]context.CancelFunc{}
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	for {
		members, self := cl.log.Members(), cl.log.Member()
		for _, id := range members {
			if following[id] == nil && id != self {
				ctx, cancel := context.WithCancel(cl.stop)
				following[id] = cancel
				cl.followers.Go(func() { cl.followMember(ctx, id) })
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
		case <-cl.stop.Done():
			for _, cancel := range following {
				cancel()
			}
			return
		}
	}
}

// followMember follows one.
func (cl *cluster) followMember(ctx context.Context, id string) {
	after := Now
	_ = followPolicy.Do(ctx, func(ctx context.Context) error { // until the context ends
		for {
			h, err := cl.askEvents(ctx, id, after)
			if err != nil {
				return err
			}
			after = h.After
			cl.e.hub.tell(h, id)
			select {
			case <-time.After(followPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// askEvents asks a member for events.
func (cl *cluster) askEvents(ctx context.Context, id string, after uint64) (h happened, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*followWait)
	defer cancel()
	request, err := json.Marshal(&call{Op: opEvents, After: after})
	if err != nil {
		return h, err
	}
	text, err := cl.log.Ask(ctx, id, request)
	if err != nil {
		return h, err
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return h, err
	}
	if a.Error != nil {
		return h, a.Error.err()
	}
	if a.Happened == nil {
		return h, errors.New("an answer without events")
	}
	return *a.Happened, nil
}

// tell puts events of another process into the stream.
func (h *hub) tell(from happened, member string) {
	if len(from.Events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, ev := range from.Events {
		h.add(Event{Event: ev, Member: member})
	}
	h.wake()
}

// answerMember answers what is asked of this process.
func (cl *cluster) answerMember() journal.Answer {
	return cl.answers(func(ctx context.Context, c *call) (a answer, err error) {
		if c.Op != opEvents {
			return a, errCall
		}
		a.Happened = cl.e.hub.happened(ctx, c.After)
		return a, nil
	})
}

// happened returns events of this process, waiting for the first for a while.
func (h *hub) happened(ctx context.Context, after uint64) *happened {
	h.wanted.Store(true)
	if after == Now {
		h.mu.Lock()
		defer h.mu.Unlock()
		return &happened{After: h.seq}
	}
	wait := time.NewTimer(followWait)
	defer wait.Stop()
	out := &happened{After: after}
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
			continue // of others, who tell themselves
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
