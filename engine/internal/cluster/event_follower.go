package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	followPause  = 100 * time.Millisecond // pause between two requests to the same process
	membersEvery = time.Second            // how often the list of members is read
)

// followPolicy is the retry policy for a member that does not answer.
var followPolicy = retry.Must("exponential(200ms..5s) attempts=unlimited")

// eventFollower adds the events of all other processes of a cluster to the event stream of
// this process.
type eventFollower struct {
	hub  *shard.Hub
	log  journal.Cluster
	stop context.Context // ends when the engine is closed

	watch     func()        // starts following; the first reader of events calls it
	watched   chan struct{} // closed by watch
	followers sync.WaitGroup
}

func (f *eventFollower) init(h *shard.Hub, log journal.Cluster, stop context.Context) {
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
		case <-f.stop.Done(): // which ends the contexts of the followers, too
			return
		}
	}
}

// followMember adds the events of one process to the stream, until the context ends.
func (f *eventFollower) followMember(ctx context.Context, id string) {
	after := info.NewEvents
	_ = followPolicy.Do(ctx, func(ctx context.Context) error { // unlimited attempts: the only error is that the context has ended
		for {
			h, err := f.askEvents(ctx, id, after)
			if err != nil {
				return err
			}
			after = h.After
			f.hub.Publish(h.Events, id)
			select {
			case <-time.After(followPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// askEvents asks a member for its events after a sequence number.
func (f *eventFollower) askEvents(ctx context.Context, id string, after uint64) (*shard.RemoteEvents, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*shard.FollowWait)
	defer cancel()
	a, err := askMember(ctx, f.log, id, &shard.Call{Op: shard.OpEvents, After: after})
	events := cmp.Or(a.Events, a.Happened)
	if err == nil && events == nil {
		err = errors.New("an answer without events")
	}
	return events, err
}

// askMember sends a call to a member as a whole, not to one of its shards.
func askMember(ctx context.Context, log journal.Cluster, id string, c *shard.Call) (a shard.Answer, err error) {
	request, err := json.Marshal(c)
	if err != nil {
		return a, err
	}
	text, err := log.Ask(ctx, id, request)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil {
		err = a.Error.Err()
	}
	return a, err
}
