package jetstream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// atOnce is how many calls inParallel makes at the same time.
const atOnce = 8

// Status implements [journal.Cluster].
func (l *Log) Status(ctx context.Context) (s journal.Status, err error) {
	for a := range asks.Attempts(ctx, &err) {
		if err = l.life.Err(); err != nil {
			err = errClosed
			continue
		}
		err = l.refresh(a.Context())
	}
	if err != nil {
		return s, fmt.Errorf("status of %s: %w", l.cfg.Name, plain(err))
	}
	state, _ := l.view.current()
	s.Members, s.Shards = l.view.members(state), make([]journal.Shard, len(state.shards))
	inParallel(len(state.shards), func(n int) { s.Shards[n] = l.shardStatus(ctx, n, state.shards[n]) })
	return s, ctx.Err()
}

// inParallel calls f for all numbers below count, atOnce of them at a time.
func inParallel(count int, f func(i int)) {
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range count {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			f(i)
		})
	}
	group.Wait()
}

// shardStatus returns the status of shard n, whose record is r.
func (b *backend) shardStatus(ctx context.Context, n int, r shardRecord) journal.Shard {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	s := journal.Shard{Number: n, Owner: r.Owner, Epoch: r.Epoch}
	state, err := b.logState(ctx, b.shardLog(n))
	if err != nil {
		s.Error = b.cfg.redact(err.Error())
		return s
	}
	s.First, s.Last, s.Bytes, s.Lag = state.first, state.last, state.bytes, state.lag
	return s
}

// statusTime is how long the status waits for a stream.
const statusTime = 3 * time.Second
