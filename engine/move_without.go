package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// unreadable says of which shard an error of reading is, and whether it is lost.
func (s *side) unreadable(n int, err error) error {
	wrapped := s.wrapShard(n, err)
	if s.what == "source" && s.shards > 1 && isDamage(err) {
		return &LostShardError{n, wrapped}
	}
	return wrapped
}

// ErrNotLost says that a shard can't be left out of a move or a backup: it is there,
// may be there later, or never was.
var ErrNotLost = errors.New("can't be left out")

// leavable fails if what is to be left out is not there, or is everything.
func (s *side) leavable() error {
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

// leaveLeased leaves out a shard that nobody else may use meanwhile.
func (s *side) leaveLeased(ctx context.Context, log journal.Log, n int) error {
	l, err := log.Lease(ctx, n)
	if err != nil {
		return s.leave(ctx, n, nil, err)
	}
	return errors.Join(s.leave(ctx, n, l, nil), l.Release())
}

// leave leaves out a shard, if it is lost. A mistake would cost all that is in it,
// so one that can be read, or may be when servers are back, is not left out.
func (s *side) leave(ctx context.Context, n int, r journal.Reader, err error) error {
	if err == nil {
		var f *folded
		if f, err = fold(ctx, r); err == nil {
			f.cold.close()
			return fmt.Errorf("shard %d of the %s %w: it can be read", n, s.what, ErrNotLost)
		}
	}
	if !isDamage(err) || ctx.Err() != nil {
		return fmt.Errorf("shard %d of the %s %w: it is not lost, and may be read later: %w", n, s.what, ErrNotLost, err)
	}
	s.lost = append(s.lost, LeftOut{n, err.Error()})
	return nil
}
