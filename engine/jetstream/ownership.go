package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

var (
	errReleased  = errors.New("it was released")
	errTakenOver = errors.New("another member has taken the shard over")
)

// ownership is the right of this process to change a shard, from the record in the
// bucket that grants it until another member takes over, the heartbeats stop, or the
// lease is released. A lease, its log and its blobs ask it before each operation.
type ownership struct {
	backend *backend
	member  *membership
	onEnd   func(*ownership) // called when the ownership ends
	shard   int
	epoch   uint64

	life context.Context //nolint:containedctx // ends with the ownership; its cause is the reason
	end  context.CancelCauseFunc

	changing chan struct{} // held while blobs change and while the log is truncated

	mu       sync.Mutex
	record   shardRecord    // the record that makes us the owner
	requests *requestServer // serves requests to the shard; nil means none
}

// losses returns the losses that were accepted.
func (o *ownership) losses() []journal.Loss {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.losses()
}

// lose ends the ownership in this process. It does not change the bucket.
func (o *ownership) lose(why error) {
	o.end(why)
	o.mu.Lock()
	requests := o.requests
	o.requests = nil
	o.mu.Unlock()
	if requests != nil {
		requests.close()
	}
	o.onEnd(o)
}

// takenOver reports whether the record r shows that we are no longer the owner.
// revision is that of the bucket when r was read. A record from before we became the
// owner does not count.
func (o *ownership) takenOver(r shardRecord, revision uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.revision == 0 {
		return revision >= o.record.revision // the key was removed by hand
	}
	return r.revision > o.record.revision && (r.Owner != o.record.Owner || r.Epoch != o.epoch)
}

// storeEnd writes the last sequence of the log into the bucket. With it the next owner
// detects that the stream was emptied or replaced by hand while the shard had no owner.
func (o *ownership) storeEnd(ctx context.Context, last uint64) error {
	o.mu.Lock()
	old := o.record
	o.mu.Unlock()
	record := old
	record.Last = last
	revision, err := o.backend.replaceShard(ctx, o.shard, old, record)
	if err != nil {
		return err
	}
	record.revision = revision
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record = record
	return nil
}

// release removes the owner from the record of the shard, whose log ends at last.
func (o *ownership) release(ctx context.Context, last uint64) error {
	o.mu.Lock()
	record := o.record
	o.mu.Unlock()
	record.Last = max(record.Last, last)
	return o.backend.releaseShard(ctx, o.shard, record)
}

// usable returns nil while the lease is valid, else ErrStale or the context's error. It
// ends the lease if no heartbeat has arrived in time.
func (o *ownership) usable(ctx context.Context) error {
	if o.life.Err() == nil && o.member.leaseTimeLeft() <= 0 {
		// This process was stopped for so long that another may own the shard.
		o.lose(errSilent)
	}
	if o.life.Err() != nil {
		return o.stale()
	}
	return ctx.Err()
}

// stale is the error of each operation after the lease has ended.
func (o *ownership) stale() error {
	return fmt.Errorf("%w: the lease with epoch %d has ended: %w", journal.ErrStale, o.epoch, context.Cause(o.life))
}

// lock acquires a lock of the lease. It fails if the lease has ended.
func (o *ownership) lock(ctx context.Context, lock chan struct{}) error {
	return disk.Lock(ctx, lock, o.usable)
}

// during returns a context that also ends when the lease does.
func (o *ownership) during(ctx context.Context) (context.Context, context.CancelFunc) {
	return endingWith(ctx, o.life, o.stale)
}

// explain returns the error of an operation; if it failed because the lease ended,
// the error says so.
func (o *ownership) explain(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && o.life.Err() != nil && !errors.Is(err, journal.ErrStale) {
		return o.stale()
	}
	return plain(err)
}

// confirm reads the record of the shard, and fails if we are no longer its owner.
func (o *ownership) confirm(ctx context.Context) error {
	r, err := o.backend.shardRecord(ctx, o.shard)
	if err != nil {
		return err
	}
	if o.takenOver(r, r.revision) {
		o.lose(errTakenOver)
		return o.usable(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Owner != o.record.Owner || r.Epoch != o.epoch {
		return errChanged // an old leader answered, or the bucket of another cluster: try again
	}
	return nil
}

// serve makes answer receive the requests to the shard.
func (o *ownership) serve(answer journal.Answer) error {
	s, err := newRequestServer(o.backend.c, o.backend.names.shardSubject(o.shard), answer)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.life.Err() != nil:
		err = o.stale()
	case o.requests != nil:
		err = errors.New("it is served already")
	}
	if err != nil {
		s.close()
		return err
	}
	o.requests = s
	return nil
}

// warn logs a failure that does not keep the owner from working.
func (o *ownership) warn(message string, err error) {
	o.backend.cfg.Logger.Warn(message, "shard", o.shard, "error", o.backend.cfg.redact(err.Error()))
}
