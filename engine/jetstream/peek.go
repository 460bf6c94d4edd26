package jetstream

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/engine/journal"
)

// Peek implements [journal.Cluster].
func (l *Log) Peek(ctx context.Context, shard int) (_ journal.Reader, err error) {
	if shard < 0 || shard >= l.settings.Shards {
		return nil, fmt.Errorf("peek at shard %d of %s: there is no such shard: the cluster has %d", shard, l.cfg.Name, l.settings.Shards)
	}
	var state logState
	for a := range asks.Attempts(ctx, &err) {
		state, err = l.logState(a.Context(), stream{l.c, l.names.logStream(shard)})
	}
	if err != nil {
		return nil, fmt.Errorf("peek at shard %d of %s: %w", shard, l.cfg.Name, plain(err))
	}
	return &peek{newLease(l, shard, shardRecord{}, state)}, nil
}

// peek reads a shard that somebody else may own. It is a lease that nobody knows
// of, and has no way to change anything.
type peek struct{ journal.Reader }
