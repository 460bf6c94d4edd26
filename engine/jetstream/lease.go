package jetstream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// lease implements [journal.Shared]. leaseLog has the entries of the shard, blobs has its
// blobs; both work only while own is valid.
type lease struct {
	*leaseLog
	own     *ownership
	blobs   *leaseBlobs
	clocks  *machineClocks
	release func() error
}

var (
	_ journal.Shared       = (*lease)(nil)
	_ journal.Clocked      = (*lease)(nil)
	_ journal.LossReporter = (*lease)(nil)
)

// Epoch implements [journal.Lease].
func (l *lease) Epoch() uint64 { return l.own.epoch }

// SinceBoot implements [journal.Clocked].
func (l *lease) SinceBoot() (time.Duration, string) { return l.clocks.cfg.sinceBoot() }

// Ahead implements [journal.Clocked].
func (l *lease) Ahead(ctx context.Context, boot string) (time.Duration, bool) {
	return l.clocks.of(ctx, boot)
}

// Losses implements [journal.LossReporter].
func (l *lease) Losses() []journal.Loss { return l.own.losses() }

// Lost implements [journal.Lease].
func (l *lease) Lost() <-chan struct{} { return l.own.life.Done() }

// Serve implements [journal.Shared].
func (l *lease) Serve(answer journal.Answer) error {
	return disk.Wrapf(l.own.serve(answer), "serve shard %d", l.own.shard)
}

// Release implements [journal.Lease].
func (l *lease) Release() error { return l.release() }

func (l *lease) giveUp() error {
	l.own.lose(errReleased)
	// Wait for an append or a change of blobs that is in progress.
	l.appending <- struct{}{}
	l.own.changing <- struct{}{}
	last := l.last.Load()
	<-l.own.changing
	<-l.appending
	err := farewells.Do(context.Background(), func(ctx context.Context) error { return l.own.release(ctx, last) })
	return disk.Wrapf(err, "release shard %d", l.own.shard)
}

// Append implements [journal.Lease]. It gives up after some seconds; then the
// caller may repeat it.
func (l *lease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (seq uint64, err error) {
	if err := l.append(ctx, journal.Entry{Seq: expected + 1, Epoch: l.own.epoch, ID: id, Data: data}); err != nil {
		return 0, fmt.Errorf("append after %d to shard %d: %w", expected, l.own.shard, plain(err))
	}
	return expected + 1, nil
}

// Truncate implements [journal.Lease]. The server drops whole files and rewrites one
// at most, so one request is enough.
func (l *lease) Truncate(ctx context.Context, below uint64) error {
	err := l.own.explain(ctx, l.truncate(ctx, below))
	return disk.Wrapf(err, "truncate shard %d below %d", l.own.shard, below)
}

// Put implements [journal.Lease]. It also copies the blob to Config.SecondPlace. If that
// fails, Put logs the error and succeeds; the next Put tries the copy again.
func (l *lease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	err := l.own.explain(ctx, l.blobs.put(ctx, name, write))
	return disk.Wrapf(err, "put blob %q of shard %d", name, l.own.shard)
}

// Get implements [journal.Lease]. It returns a file, and so an [io.ReaderAt].
func (l *lease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := l.blobs.get(ctx, name)
	if err != nil {
		return nil, disk.Wrapf(l.own.explain(ctx, err), "get blob %q of shard %d", name, l.own.shard)
	}
	return f, nil
}

// Blobs implements [journal.Lease]. It also lists blobs that NATS has lost and that only
// Config.SecondPlace has.
func (l *lease) Blobs(ctx context.Context) ([]journal.Blob, error) {
	blobs, err := l.blobs.list(ctx)
	slices.SortFunc(blobs, func(a, b journal.Blob) int { return cmp.Compare(a.Name, b.Name) })
	return blobs, disk.Wrapf(l.own.explain(ctx, err), "list blobs of shard %d", l.own.shard)
}

// Delete implements [journal.Lease].
func (l *lease) Delete(ctx context.Context, name string) error {
	err := l.own.explain(ctx, l.blobs.delete(ctx, name))
	return disk.Wrapf(err, "delete blob %q of shard %d", name, l.own.shard)
}
