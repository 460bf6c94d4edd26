package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/engine/journal"
)

var (
	errReleased  = errors.New("it was released")
	errTakenOver = errors.New("another member has taken the shard over")
)

// lease is the ownership of a shard. It implements [journal.Shared].
type lease struct {
	log     *Log
	shard   int
	stream  stream
	subject string
	epoch   uint64

	life    context.Context //nolint:containedctx // until the lease ends; its cause says why
	end     context.CancelCauseFunc
	release func() error

	turn        chan struct{} // is held by an append
	gate        chan struct{} // is held while blobs change and while the log is cut
	first, last atomic.Uint64 // sequences; last is of the last entry that is known
	unsure      atomic.Bool   // an append ended without an answer
	listed      atomic.Bool   // the blobs were listed

	mu     sync.Mutex
	record shardRecord // what makes us the owner
	desk   *desk       // takes requests; nil means none
}

var _ journal.Shared = (*lease)(nil)

func newLease(l *Log, shard int, r shardRecord, s logState) *lease {
	held := &lease{
		log: l, shard: shard, stream: stream{l.c, l.names.logStream(shard)}, subject: l.names.logSubject(shard),
		epoch: r.Epoch, record: r, turn: make(chan struct{}, 1), gate: make(chan struct{}, 1),
	}
	held.life, held.end = context.WithCancelCause(context.Background())
	held.release = sync.OnceValue(held.giveUp)
	held.first.Store(s.first)
	held.last.Store(s.last)
	return held
}

// Epoch implements [journal.Lease].
func (l *lease) Epoch() uint64 { return l.epoch }

// Lost implements [journal.Lease].
func (l *lease) Lost() <-chan struct{} { return l.life.Done() }

// lose ends the lease. The bucket is not told.
func (l *lease) lose(why error) {
	l.end(why)
	l.mu.Lock()
	desk := l.desk
	l.desk = nil
	l.mu.Unlock()
	if desk != nil {
		desk.close()
	}
	l.log.forget(l)
}

// takenOver reports whether the bucket says that the shard is not ours any more.
// What it said before we became the owner does not count.
func (l *lease) takenOver(r shardRecord, revision uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.revision == 0 {
		return revision >= l.record.revision // somebody has removed the key
	}
	return r.revision > l.record.revision && (r.Owner != l.record.Owner || r.Epoch != l.epoch)
}

// noteEnd writes into the bucket how far the log has come. If its stream is emptied
// or replaced by hand while nobody owns it, the next owner notices.
func (l *lease) noteEnd(ctx context.Context) error {
	l.mu.Lock()
	record := l.record
	l.mu.Unlock()
	old := record
	record.Last = l.last.Load()
	revision, err := l.log.replace(ctx, l.shard, old, record)
	if err != nil {
		return err
	}
	record.revision = revision
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record = record
	return nil
}

// Release implements [journal.Lease].
func (l *lease) Release() error { return l.release() }

func (l *lease) giveUp() error {
	l.lose(errReleased)
	// Whoever is in the middle of something has finished, and knows how it went.
	l.turn <- struct{}{}
	l.gate <- struct{}{}
	l.mu.Lock()
	record := l.record
	l.mu.Unlock()
	record.Last = max(record.Last, l.last.Load())
	<-l.gate
	<-l.turn
	err := farewells.Do(context.Background(), func(ctx context.Context) error { return l.log.letGo(ctx, l.shard, record) })
	if err != nil {
		return fmt.Errorf("release shard %d: %w", l.shard, err)
	}
	return nil
}

// usable says why nothing may be done under the lease any more.
func (l *lease) usable(ctx context.Context) error {
	if l.life.Err() == nil && l.log.left() <= 0 {
		// The process stood still for so long that others may have taken over.
		l.lose(errSilent)
	}
	if l.life.Err() != nil {
		return l.stale()
	}
	return ctx.Err()
}

// stale is the error of everything after the lease has ended.
func (l *lease) stale() error {
	return fmt.Errorf("%w: the lease with epoch %d has ended: %w", journal.ErrStale, l.epoch, context.Cause(l.life))
}

// pass waits at a channel that lets one through at a time.
func (l *lease) pass(ctx context.Context, gate chan struct{}) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	select {
	case gate <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.usable(ctx); err != nil {
		<-gate
		return err
	}
	return nil
}

// during returns a context that ends with the lease too.
func (l *lease) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(l.stale()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// ended returns the error of something that was done under the lease; if it failed
// because the lease ended, that is what it says.
func (l *lease) ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && l.life.Err() != nil && !errors.Is(err, journal.ErrStale) {
		return l.stale()
	}
	return plain(err)
}

// owned checks with the bucket that nobody has taken over.
func (l *lease) owned(ctx context.Context) error {
	r, err := l.log.shardRecord(ctx, l.shard)
	if err != nil {
		return err
	}
	if l.takenOver(r, r.revision) {
		l.lose(errTakenOver)
		return l.usable(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Owner != l.record.Owner || r.Epoch != l.epoch {
		return errChanged // by a leader that is behind, or in another cluster: both show soon
	}
	return nil
}

// Bounds implements [journal.Lease].
func (l *lease) Bounds(ctx context.Context) (first, last uint64, err error) {
	for a := range asks.Attempts(ctx, &err) {
		first, last, err = l.bounds(a.Context())
	}
	if err != nil {
		return 0, 0, fmt.Errorf("bounds of shard %d: %w", l.shard, plain(err))
	}
	return first, last, nil
}

// bounds asks the leader.
func (l *lease) bounds(ctx context.Context) (first, last uint64, err error) {
	if err := l.usable(ctx); err != nil {
		return 0, 0, err
	}
	s, err := l.log.logStateSince(ctx, l.stream, l.last.Load())
	if err != nil {
		return 0, 0, err
	}
	raise(&l.first, s.first)
	raise(&l.last, s.last)
	return s.first, s.last, nil
}

// raise makes the number at least n.
func raise(number *atomic.Uint64, n uint64) {
	for {
		old := number.Load()
		if old >= n || number.CompareAndSwap(old, n) {
			return
		}
	}
}
