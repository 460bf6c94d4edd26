package jetstream

import (
	"context"
	"errors"
	"fmt"
)

// Truncate implements [journal.Lease]. The server drops whole files and rewrites
// one at most, so it takes no steps.
func (l *lease) Truncate(ctx context.Context, below uint64) error {
	err := l.truncate(ctx, below)
	if err != nil {
		return fmt.Errorf("truncate shard %d below %d: %w", l.shard, below, l.ended(ctx, err))
	}
	return nil
}

func (l *lease) truncate(ctx context.Context, below uint64) (err error) {
	if err := l.pass(ctx, l.gate); err != nil {
		return err
	}
	defer func() { <-l.gate }()
	below = min(below, l.last.Load()+1)
	if below <= l.first.Load() {
		return nil
	}
	for a := range asks.Attempts(ctx, &err) {
		err = errors.Join(l.usable(a.Context()), l.owned(a.Context()))
		if err == nil {
			err = l.stream.purge(a.Context(), "", below)
		}
	}
	if err == nil {
		raise(&l.first, below)
	}
	return err
}
