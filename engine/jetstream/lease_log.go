package jetstream

import (
	"context"
	"errors"
	"sync/atomic"
)

// leaseLog gives the owner of a shard access to its log.
type leaseLog struct {
	lease     *lease
	stream    stream
	subject   string
	appending chan struct{} // held by an append

	first, last atomic.Uint64 // sequences of the first and the last entry, as far as they are known
	unsure      atomic.Bool   // an append ended without an answer
}

// Bounds implements [journal.Lease].
func (l *leaseLog) Bounds(ctx context.Context) (first, last uint64, err error) {
	for a := range asks.Attempts(ctx, &err) {
		first, last, err = l.bounds(a.Context())
	}
	return first, last, wrapf(plain(err), "bounds of shard %d", l.lease.shard)
}

// bounds asks the leader of the stream for the bounds of the log.
func (l *leaseLog) bounds(ctx context.Context) (first, last uint64, err error) {
	if err := l.lease.usable(ctx); err != nil {
		return 0, 0, err
	}
	s, err := l.lease.backend.logStateSince(ctx, l.stream, l.last.Load())
	if err != nil {
		return 0, 0, err
	}
	l.extend(s)
	return s.first, s.last, nil
}

// extend raises the known bounds to those of the state.
func (l *leaseLog) extend(s logState) {
	raise(&l.first, s.first)
	raise(&l.last, s.last)
}

// raise sets the number to n, unless the number is already larger than n.
func raise(number *atomic.Uint64, n uint64) {
	for {
		old := number.Load()
		if old >= n || number.CompareAndSwap(old, n) {
			return
		}
	}
}

// Truncate implements [journal.Lease]. The server drops whole files and rewrites one
// at most, so one request is enough.
func (l *leaseLog) Truncate(ctx context.Context, below uint64) error {
	err := l.lease.explain(ctx, l.truncate(ctx, below))
	return wrapf(err, "truncate shard %d below %d", l.lease.shard, below)
}

func (l *leaseLog) truncate(ctx context.Context, below uint64) (err error) {
	if err := l.lease.lock(ctx, l.lease.changing); err != nil {
		return err
	}
	defer func() { <-l.lease.changing }()
	below = min(below, l.last.Load()+1)
	if below <= l.first.Load() {
		return nil
	}
	for a := range asks.Attempts(ctx, &err) {
		err = errors.Join(l.lease.usable(a.Context()), l.lease.confirm(a.Context()))
		if err == nil {
			err = l.stream.purge(a.Context(), "", below)
		}
	}
	if err == nil {
		raise(&l.first, below)
	}
	return err
}
