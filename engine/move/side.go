package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

// side is one of the two logs of a move.
type side struct {
	what    string
	shards  int              // of the log
	numbers []int            // of the shards that are moved: all but the lost ones
	leases  []journal.Lease  // of these; none if the log is only read
	readers []journal.Reader // of these
	last    []uint64         // entry of each shard, as far as this process knows

	without []int           // shards that are to be left out
	lost    []LeftOut       // shards that are left out
	cluster journal.Cluster // nil if the log is no cluster
}

// lease takes all shards.
func (s *side) lease(ctx context.Context, log journal.Log) error {
	s.cluster, _ = log.(journal.Cluster)
	s.shards = 1
	if c, ok := log.(interface{ Shards() int }); ok {
		s.shards = c.Shards()
	}
	if s.shards < 1 {
		return fmt.Errorf("the %s has %d shards", s.what, s.shards)
	}
	if err := s.checkWithout(); err != nil {
		return err
	}
	for n := range s.shards {
		if slices.Contains(s.without, n) {
			if err := s.leaveOutLeased(ctx, log, n); err != nil {
				return err
			}
			continue
		}
		if err := s.leaseOne(ctx, log, n); err != nil {
			return err
		}
	}
	return nil
}

// leaseOne takes a shard.
func (s *side) leaseOne(ctx context.Context, log journal.Log, n int) error {
	l, err := log.Lease(ctx, n)
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("%w; stop what uses it first%s", s.wrapShard(n, err), holder(ctx, log, n))
	}
	if err != nil {
		return s.unreadable(n, err)
	}
	s.numbers, s.leases, s.readers = append(s.numbers, n), append(s.leases, l), append(s.readers, l)
	_, last, err := l.Bounds(ctx)
	if err != nil {
		return s.unreadable(n, err)
	}
	s.last = append(s.last, last)
	return nil
}

// peek opens all shards of a cluster for reading, and owns none.
func (s *side) peek(ctx context.Context, log journal.Cluster) error {
	s.shards = log.Shards()
	if err := s.checkWithout(); err != nil {
		return err
	}
	for n := range s.shards {
		r, err := log.Peek(ctx, n)
		if slices.Contains(s.without, n) {
			if err := s.leaveOut(ctx, n, r, err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return s.unreadable(n, err)
		}
		s.numbers, s.readers = append(s.numbers, n), append(s.readers, r)
	}
	return nil
}

// holder returns the name of the process that has a shard, if that is known.
func holder(ctx context.Context, log journal.Log, shard int) string {
	c, ok := log.(journal.Cluster)
	if !ok {
		return ""
	}
	status, err := c.Status(ctx)
	if err != nil || shard >= len(status.Shards) {
		return ""
	}
	for _, member := range status.Members {
		if member.ID == status.Shards[shard].Owner {
			return ": " + member.Name
		}
	}
	return ""
}

func (s *side) release() error {
	var errs []error
	for i, l := range s.leases {
		if err := l.Release(); err != nil {
			errs = append(errs, s.wrap(i, err))
		}
	}
	return errors.Join(errs...)
}

// wrap adds the shard at the index to an error.
func (s *side) wrap(at int, err error) error { return s.wrapShard(s.numbers[at], err) }

func (s *side) wrapShard(n int, err error) error {
	return fmt.Errorf("shard %d of the %s: %w", n, s.what, err)
}

// fence records an entry that changes nothing. The log refuses it if another process has
// recorded something, even if this process still counts on its lease. After it, a process
// that has not read it can record nothing.
func (s *side) fence(ctx context.Context, shard int, move string) error {
	var e machine.Entry
	e.Reset(time.Now().UnixNano(), 0)
	seq, err := s.leases[shard].Append(ctx, s.last[shard], fenceID(move, s.last[shard]+1), e.Bytes())
	if err != nil {
		return s.wrap(shard, err)
	}
	s.last[shard] = seq
	return nil
}

// fenceID returns the id of the entry that is a fence of the move.
func fenceID(move string, seq uint64) journal.ID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", move, seq))
	return journal.ID(sum[:16])
}

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
