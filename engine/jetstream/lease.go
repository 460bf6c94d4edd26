package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

var (
	errReleased  = errors.New("it was released")
	errTakenOver = errors.New("another member has taken the shard over")
)

// lease is the ownership of a shard. It implements [journal.Shared]: leaseLog has the
// methods for entries, leaseBlobs those for blobs.
type lease struct {
	backend *backend
	table   *leaseTable
	shard   int
	epoch   uint64

	life    context.Context //nolint:containedctx // ends with the lease; its cause is the reason
	end     context.CancelCauseFunc
	release func() error

	changing chan struct{} // held while blobs change and while the log is truncated

	mu       sync.Mutex
	record   shardRecord    // the record that makes us the owner
	requests *requestServer // serves requests to the shard; nil means none

	leaseLog
	leaseBlobs
}

var (
	_ journal.Shared       = (*lease)(nil)
	_ journal.Clocked      = (*lease)(nil)
	_ journal.LossReporter = (*lease)(nil)
)

func newLease(t *leaseTable, shard int, r shardRecord, s logState) *lease {
	l := &lease{
		backend: t.backend, table: t, shard: shard, epoch: r.Epoch, record: r, changing: make(chan struct{}, 1),
		leaseLog: leaseLog{
			stream: t.shardLog(shard), subject: t.names.logSubject(shard), appending: make(chan struct{}, 1),
		},
		leaseBlobs: leaseBlobs{objects: t.objects},
	}
	l.leaseLog.lease, l.leaseBlobs.lease = l, l
	l.life, l.end = context.WithCancelCause(context.Background())
	l.release = sync.OnceValue(l.giveUp)
	l.extend(s)
	return l
}

// Epoch implements [journal.Lease].
func (l *lease) Epoch() uint64 { return l.epoch }

// SinceBoot implements [journal.Clocked].
func (l *lease) SinceBoot() (time.Duration, string) { return l.backend.cfg.sinceBoot() }

// Ahead implements [journal.Clocked].
func (l *lease) Ahead(ctx context.Context, boot string) (time.Duration, bool) {
	return l.table.clocks.of(ctx, boot)
}

// Losses implements [journal.LossReporter].
func (l *lease) Losses() []journal.Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.losses()
}

// Lost implements [journal.Lease].
func (l *lease) Lost() <-chan struct{} { return l.life.Done() }

// lose ends the lease in this process. It does not change the bucket.
func (l *lease) lose(why error) {
	l.end(why)
	l.mu.Lock()
	requests := l.requests
	l.requests = nil
	l.mu.Unlock()
	if requests != nil {
		requests.close()
	}
	l.table.remove(l)
}

// takenOver reports whether the record r shows that we are no longer the owner.
// revision is that of the bucket when r was read. A record from before we became the
// owner does not count.
func (l *lease) takenOver(r shardRecord, revision uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.revision == 0 {
		return revision >= l.record.revision // the key was removed by hand
	}
	return r.revision > l.record.revision && (r.Owner != l.record.Owner || r.Epoch != l.epoch)
}

// storeEnd writes the last sequence of the log into the bucket. With it the next owner
// detects that the stream was emptied or replaced by hand while the shard had no owner.
func (l *lease) storeEnd(ctx context.Context) error {
	l.mu.Lock()
	record := l.record
	l.mu.Unlock()
	old := record
	record.Last = l.last.Load()
	revision, err := l.backend.replaceShard(ctx, l.shard, old, record)
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
	// Wait for an append or a change of blobs that is in progress.
	l.appending <- struct{}{}
	l.changing <- struct{}{}
	l.mu.Lock()
	record := l.record
	l.mu.Unlock()
	record.Last = max(record.Last, l.last.Load())
	<-l.changing
	<-l.appending
	err := farewells.Do(context.Background(), func(ctx context.Context) error { return l.backend.releaseShard(ctx, l.shard, record) })
	return wrapf(err, "release shard %d", l.shard)
}

// usable returns nil while the lease is valid, else ErrStale or the context's error. It
// ends the lease if no heartbeat has arrived in time.
func (l *lease) usable(ctx context.Context) error {
	if l.life.Err() == nil && l.table.member.leaseTimeLeft() <= 0 {
		// This process was stopped for so long that another may own the shard.
		l.lose(errSilent)
	}
	if l.life.Err() != nil {
		return l.stale()
	}
	return ctx.Err()
}

// stale is the error of each operation after the lease has ended.
func (l *lease) stale() error {
	return fmt.Errorf("%w: the lease with epoch %d has ended: %w", journal.ErrStale, l.epoch, context.Cause(l.life))
}

// lock locks a lock of the lease, which is a channel with room for one element. It fails
// if the lease has ended.
func (l *lease) lock(ctx context.Context, lock chan struct{}) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	select {
	case lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.usable(ctx); err != nil {
		<-lock
		return err
	}
	return nil
}

// during returns a context that also ends when the lease does.
func (l *lease) during(ctx context.Context) (context.Context, context.CancelFunc) {
	return endingWith(ctx, l.life, l.stale)
}

// explain returns the error of an operation; if it failed because the lease ended,
// the error says so.
func (l *lease) explain(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && l.life.Err() != nil && !errors.Is(err, journal.ErrStale) {
		return l.stale()
	}
	return plain(err)
}

// confirm reads the record of the shard, and fails if we are no longer its owner.
func (l *lease) confirm(ctx context.Context) error {
	r, err := l.backend.shardRecord(ctx, l.shard)
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
		return errChanged // an old leader answered, or the bucket of another cluster: try again
	}
	return nil
}

// Serve implements [journal.Shared].
func (l *lease) Serve(answer journal.Answer) error {
	s, err := newRequestServer(l.backend.c, l.backend.names.shardSubject(l.shard), answer)
	if err != nil {
		return fmt.Errorf("serve shard %d: %w", l.shard, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.life.Err() != nil:
		err = l.stale()
	case l.requests != nil:
		err = errors.New("it is served already")
	}
	if err != nil {
		s.close()
		return fmt.Errorf("serve shard %d: %w", l.shard, err)
	}
	l.requests = s
	return nil
}

// warn logs a failure that does not keep the owner from working.
func (l *lease) warn(message string, err error) {
	l.backend.cfg.Logger.Warn(message, "shard", l.shard, "error", l.backend.cfg.redact(err.Error()))
}
