package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

// LeftOut is a shard that was not moved or copied, because it is lost.
type LeftOut struct {
	Shard int    `json:"shard"`
	Error string `json:"error"` // why it can't be read
}

// LostShardError says that a shard of a source with several can't be read, and that
// this does not pass by itself.
type LostShardError struct {
	Shard int
	Err   error // why
}

// Error implements error.
func (e *LostShardError) Error() string { return e.Err.Error() }

// Unwrap returns why it can't be read.
func (e *LostShardError) Unwrap() error { return e.Err }

// unreadable adds the shard to an error of reading, and whether it is lost.
func (s *side) unreadable(n int, err error) error {
	wrapped := s.wrapShard(n, err)
	if s.what == "source" && s.shards > 1 && store.IsDamage(err) {
		return &LostShardError{n, wrapped}
	}
	return wrapped
}

// ErrNotLost says that a shard can't be left out of a move or a backup: it is there,
// may be there later, or never was.
var ErrNotLost = errors.New("can't be left out")

// checkWithout fails if a shard that is to be left out is not there, or if all are.
func (s *side) checkWithout() error {
	s.without = slices.Compact(slices.Sorted(slices.Values(s.without)))
	for _, n := range s.without {
		switch {
		case s.shards == 1:
			return fmt.Errorf("shard %d %w: the %s has one alone", n, ErrNotLost, s.what)
		case n < 0 || n >= s.shards:
			return fmt.Errorf("shard %d %w: the %s has the shards 0 to %d", n, ErrNotLost, s.what, s.shards-1)
		}
	}
	if len(s.without) == s.shards {
		return fmt.Errorf("all %d shards of the %s %w: nothing would be left", s.shards, s.what, ErrNotLost)
	}
	return nil
}

// leaveOutLeased leaves out a shard, and keeps its lease meanwhile.
func (s *side) leaveOutLeased(ctx context.Context, log journal.Log, n int) error {
	l, err := log.Lease(ctx, n)
	if err != nil {
		return s.leaveOut(ctx, n, nil, err)
	}
	return errors.Join(s.leaveOut(ctx, n, l, nil), l.Release())
}

// leaveOut leaves out a shard, if it is lost. A mistake would cost all that is in it, so a
// shard that can be read, or may be when servers are back, is not left out.
func (s *side) leaveOut(ctx context.Context, n int, r journal.Reader, err error) error {
	if err == nil {
		var state *store.State
		if state, err = store.Fold(ctx, r); err == nil {
			state.Close()
			return fmt.Errorf("shard %d of the %s %w: it can be read", n, s.what, ErrNotLost)
		}
	}
	if !store.IsDamage(err) || ctx.Err() != nil {
		return fmt.Errorf("shard %d of the %s %w: it is not lost, and may be read later: %w", n, s.what, ErrNotLost, err)
	}
	s.lost = append(s.lost, LeftOut{n, err.Error()})
	return nil
}
