package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
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
