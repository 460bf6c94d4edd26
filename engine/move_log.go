package engine

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

// side is one of the two logs.
type side struct {
	what    string
	shards  int              // that it has
	numbers []int            // of those that follow, which are all but the lost ones
	leases  []journal.Lease  // none if it is only read
	readers []journal.Reader // of the same shards
	last    []uint64         // entry of each shard, as far as this process knows

	without []int           // that are to be left out
	lost    []LeftOut       // that are
	cluster journal.Cluster // nil if it is none
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
	if err := s.leavable(); err != nil {
		return err
	}
	for n := range s.shards {
		if slices.Contains(s.without, n) {
			if err := s.leaveLeased(ctx, log, n); err != nil {
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

// peek reads all shards of a cluster, and owns none.
func (s *side) peek(ctx context.Context, log journal.Cluster) error {
	s.shards = log.Shards()
	if err := s.leavable(); err != nil {
		return err
	}
	for n := range s.shards {
		r, err := log.Peek(ctx, n)
		if slices.Contains(s.without, n) {
			if err := s.leave(ctx, n, r, err); err != nil {
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

// holder returns who has a shard, if that can be known.
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

// wrap says of which shard an error is: the one at the place.
func (s *side) wrap(at int, err error) error { return s.wrapShard(s.numbers[at], err) }

func (s *side) wrapShard(n int, err error) error {
	return fmt.Errorf("shard %d of the %s: %w", n, s.what, err)
}

// fence records an entry that changes nothing. It is refused if anybody else has
// recorded something, whatever this process believes of its lease. And it makes
// sure that nobody can who does not know of it.
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

// fenceID returns by what a fence of a move is known.
func fenceID(move string, seq uint64) journal.ID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", move, seq))
	return journal.ID(sum[:16])
}
