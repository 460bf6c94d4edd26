package jetstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// errNotExpelled means that other members have neither sent a heartbeat nor been expelled.
var errNotExpelled = errors.New("they have sent no heartbeat for longer than the lease time, but can't be expelled")

// expelTime is how long the expulsion of a member may take after its lease time.
const expelTime = 30 * time.Second

// AwaitAlone waits until this process is the only member, and returns nil then. The record of a
// process that was killed stays until its lease time is over, and this process expels it. If
// another member sends heartbeats or joins meanwhile, AwaitAlone returns the other members. It calls waiting about every heartbeat, with the other members and how long it still
// waits, at most.
func (l *Log) AwaitAlone(ctx context.Context, waiting func(others []journal.Member, left time.Duration)) (others []journal.Member, err error) {
	ticker := time.NewTicker(l.backend.timing.beat)
	defer ticker.Stop()
	var beats map[string]uint64 // of the other members at the first look
	for begun := time.Now(); ; {
		for a := range asks.Attempts(ctx, &err) {
			err = l.follower.refresh(a.Context())
		}
		if err != nil {
			return nil, plain(err)
		}
		state, _ := l.view.current()
		others = slices.DeleteFunc(l.view.members(state), func(m journal.Member) bool { return m.ID == l.Member() })
		if beats == nil {
			beats = map[string]uint64{}
			for _, m := range others {
				beats[m.ID] = state.members[m.ID].Beat
			}
		}
		alive := slices.ContainsFunc(others, func(m journal.Member) bool {
			first, known := beats[m.ID]
			return !known || state.members[m.ID].Beat > first+1 // a process that was killed may have sent one more
		})
		left := l.backend.timing.expelAt - time.Since(begun)
		switch {
		case alive, len(others) == 0:
			return others, nil
		case left < -expelTime:
			return others, errNotExpelled
		}
		waiting(others, max(left, 0))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return others, context.Cause(ctx)
		}
	}
}
