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
	what    string           // "source" or "target"
	shards  int              // number of shards of the log
	numbers []int            // numbers of the shards that are moved: all except the lost ones
	leases  []journal.Lease  // leases of the shards in numbers; nil if the log is only read
	readers []journal.Reader // readers of the shards in numbers
	last    []uint64         // number of the last entry of each shard in numbers

	without []int           // shards that the caller wants to leave out
	lost    []LeftOut       // shards that are left out, and why
	cluster journal.Cluster // nil if the log is not a cluster
}

// lease takes the leases of all shards, except those to leave out.
func (s *side) lease(ctx context.Context, log journal.Log) error {
	s.cluster, _ = log.(journal.Cluster)
	shards := 1
	if c, ok := log.(interface{ Shards() int }); ok {
		shards = c.Shards()
	}
	return s.open(ctx, log, shards, func(n int) (journal.Reader, error) { return log.Lease(ctx, n) })
}

// peek opens all shards of a cluster for reading, without leases.
func (s *side) peek(ctx context.Context, log journal.Cluster) error {
	return s.open(ctx, log, log.Shards(), func(n int) (journal.Reader, error) { return log.Peek(ctx, n) })
}

// open opens all shards by a function that returns a lease or a reader. It leaves out the shards that the
// caller wants to leave out. It holds their leases while it checks that they are lost.
func (s *side) open(ctx context.Context, log journal.Log, shards int, open func(n int) (journal.Reader, error)) error {
	s.shards = shards
	if shards < 1 {
		return fmt.Errorf("the %s has %d shards", s.what, shards)
	}
	if err := s.checkWithout(); err != nil {
		return err
	}
	for n := range shards {
		r, err := open(n)
		l, leased := r.(journal.Lease)
		switch {
		case slices.Contains(s.without, n):
			err = s.leaveOut(ctx, n, r, err)
			if leased {
				err = errors.Join(err, l.Release())
			}
		case errors.Is(err, journal.ErrLocked):
			err = &RefusedError{fmt.Sprintf("the %s is in use%s: stop all servers that use it, then repeat the move", s.what, holder(ctx, log, n)), s.wrapShard(n, err)}
		case err != nil:
			err = s.unreadable(n, err)
		case leased:
			err = s.addLease(ctx, n, l)
		default:
			s.numbers, s.readers = append(s.numbers, n), append(s.readers, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addLease adds the lease of a shard.
func (s *side) addLease(ctx context.Context, n int, l journal.Lease) error {
	s.numbers, s.leases, s.readers = append(s.numbers, n), append(s.leases, l), append(s.readers, l)
	_, last, err := l.Bounds(ctx)
	if err != nil {
		return s.unreadable(n, err)
	}
	s.last = append(s.last, last)
	return nil
}

// RefusedError says why a move did not begin: a log is in use, or the target is not empty.
type RefusedError struct {
	Problem string // what is wrong and what to do
	Err     error  // which shard it is about, and details
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Problem + ": " + e.Err.Error() }

// Unwrap returns the details.
func (e *RefusedError) Unwrap() error { return e.Err }

// holder returns " by " and the name of the process that owns a shard; "" if it is not known.
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
			return " by " + member.Name
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

// wrap adds the shard to an error. at is an index of s.numbers.
func (s *side) wrap(at int, err error) error { return s.wrapShard(s.numbers[at], err) }

func (s *side) wrapShard(n int, err error) error {
	return fmt.Errorf("shard %d of the %s: %w", n, s.what, err)
}

// each calls f with each lease and its index. It adds the shard to an error of f.
func (s *side) each(f func(at int, l journal.Lease) error) error {
	for i, l := range s.leases {
		if err := f(i, l); err != nil {
			return s.wrap(i, err)
		}
	}
	return nil
}

// fence returns a function that appends an entry without records to a shard. The append fails if
// another process has appended something, even if this process still believes in its lease. After
// it, a process that has not read the fence can't append anything.
func (s *side) fence(ctx context.Context, move string) func(at int, l journal.Lease) error {
	return func(at int, l journal.Lease) error {
		var e machine.Entry
		e.Reset(time.Now().UnixNano(), 0)
		seq, err := l.Append(ctx, s.last[at], fenceID(move, s.last[at]+1), e.Bytes())
		if err == nil {
			s.last[at] = seq
		}
		return err
	}
}

// fenceID returns the id of the fence that a move appends as the entry seq.
func fenceID(move string, seq uint64) journal.ID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", move, seq))
	return journal.ID(sum[:16])
}

// LeftOut is a lost shard that was not moved or copied.
type LeftOut struct {
	Shard int    `json:"shard"`
	Error string `json:"error"` // why it can't be read
}

// LostShardError says that a shard of a source with several shards is damaged, so that trying again
// does not help.
type LostShardError struct {
	Shard int
	Err   error // why the shard can't be read
}

// Error implements error.
func (e *LostShardError) Error() string { return e.Err.Error() }

// Unwrap returns why the shard can't be read.
func (e *LostShardError) Unwrap() error { return e.Err }

// unreadable adds the shard to a read error. It returns a LostShardError if the shard is damaged and
// the source has other shards.
func (s *side) unreadable(n int, err error) error {
	wrapped := s.wrapShard(n, err)
	if s.what == "source" && s.shards > 1 && store.IsDamage(err) {
		return &LostShardError{n, wrapped}
	}
	return wrapped
}

// ErrNotLost says that a shard can't be left out of a move or a backup: it can be read, may become
// readable later, or does not exist.
var ErrNotLost = errors.New("can't be left out")

// checkWithout returns an error if a shard to leave out does not exist, or if no shard would be left.
func (s *side) checkWithout() error {
	s.without = slices.Compact(slices.Sorted(slices.Values(s.without)))
	for _, n := range s.without {
		switch {
		case s.shards == 1:
			return fmt.Errorf("shard %d %w: the %s has only one shard", n, ErrNotLost, s.what)
		case n < 0 || n >= s.shards:
			return fmt.Errorf("shard %d %w: the %s has the shards 0 to %d", n, ErrNotLost, s.what, s.shards-1)
		}
	}
	if len(s.without) == s.shards {
		return fmt.Errorf("all %d shards of the %s %w: nothing would be left", s.shards, s.what, ErrNotLost)
	}
	return nil
}

// leaveOut notes that a shard is left out, if it is lost. r and err are the result of opening it. It
// fails if the shard can be read, or may become readable when servers are back: leaving it out would
// lose its data.
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
