package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// leaseBlobs gives the owner of a shard access to its blobs.
type leaseBlobs struct {
	lease   *lease
	objects *objects
	listed  atomic.Bool // the blobs were listed once under this lease
}

// Put implements [journal.Lease]. It also copies the blob to Config.SecondPlace. If that
// fails, Put logs the error and succeeds; the next Put tries the copy again.
func (b *leaseBlobs) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	err := b.put(ctx, name, write)
	if err == nil {
		b.copyToSecond(ctx)
	}
	return wrapf(b.lease.explain(ctx, err), "put blob %q of shard %d", name, b.lease.shard)
}

func (b *leaseBlobs) put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := cmp.Or(disk.CheckBlobName(name), b.lease.usable(ctx)); err != nil {
		return err
	}
	ctx, cancel := b.lease.during(ctx)
	defer cancel()
	f, err := b.objects.cache.create()
	if err != nil {
		return err
	}
	defer f.abandon()
	if err := write(disk.ContextWriter(ctx, f)); err != nil {
		return err
	}
	if err := errors.Join(context.Cause(ctx), f.whole()); err != nil {
		return err
	}
	u := &upload{objects: b.objects, info: b.objects.newInfo(newObjectID(b.lease.shard, b.lease.epoch), b.lease.shard, name, f)}
	if err := u.send(ctx, f); err != nil {
		u.abandon(ctx)
		return err
	}
	return b.replace(ctx, name, u, f)
}

// replace makes the upload the blob with the name, and removes the blob that had the
// name before.
func (b *leaseBlobs) replace(ctx context.Context, name string, u *upload, f *localFile) error {
	if err := b.lease.lock(ctx, b.lease.changing); err != nil {
		return err
	}
	defer func() { <-b.lease.changing }()
	old, err := b.findOwned(ctx, name)
	if err != nil && !errors.Is(err, journal.ErrNoBlob) && !errors.Is(err, errDescription) {
		return err
	}
	if err := u.finish(ctx, b.lease.shard, name); err != nil {
		if errors.Is(err, errConflict) {
			err = fmt.Errorf("%w: another owner has removed the parts of the blob", journal.ErrStale)
		}
		return err
	}
	if err := f.keep(b.lease.shard); err != nil {
		b.lease.backend.cfg.Logger.Warn("a local copy of a blob can't be kept", "name", name, "error", err)
	}
	if err := b.lease.storeEnd(ctx); err != nil {
		b.lease.warn("the end of the log can't be written to the bucket", err)
	}
	if old == nil {
		return nil
	}
	if old.Digest != u.info.Digest {
		b.objects.cache.drop(b.lease.shard, old.Digest)
	}
	if err := b.objects.removeChunks(ctx, old.NUID); err != nil {
		b.lease.backend.cfg.Logger.Warn("a replaced blob can't be removed; the next owner removes it", "name", name, "error", err)
	}
	return nil
}

// findOwned finds a blob that is to be changed, if we still own the shard.
func (b *leaseBlobs) findOwned(ctx context.Context, name string) (info *natsjs.ObjectInfo, err error) {
	for a := range asks.Attempts(ctx, &err) {
		if err = b.lease.confirm(a.Context()); err == nil {
			info, err = b.objects.find(a.Context(), b.lease.shard, name)
		}
	}
	return info, plain(err)
}

// Get implements [journal.Lease]. It returns a file, and so an [io.ReaderAt].
func (b *leaseBlobs) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := b.get(ctx, name)
	if err != nil {
		return nil, wrapf(b.lease.explain(ctx, err), "get blob %q of shard %d", name, b.lease.shard)
	}
	return f, nil
}

func (b *leaseBlobs) get(ctx context.Context, name string) (f *os.File, err error) {
	ctx, cancel := b.lease.during(ctx)
	defer cancel()
	for {
		if err := cmp.Or(disk.CheckBlobName(name), b.lease.usable(ctx)); err != nil {
			return nil, err
		}
		info, err := b.find(ctx, name)
		if err == nil {
			f, err = b.open(ctx, info)
		}
		if errors.Is(err, journal.ErrDamaged) {
			now, findErr := b.find(ctx, name)
			if errors.Is(findErr, journal.ErrNoBlob) || findErr == nil && info != nil && now.NUID != info.NUID {
				continue // the blob was replaced or deleted meanwhile
			}
		}
		lost := errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrNoBlob)
		if b.objects.second == nil || !lost {
			return f, err
		}
		return b.getSecond(ctx, name, err)
	}
}

func (b *leaseBlobs) find(ctx context.Context, name string) (*natsjs.ObjectInfo, error) {
	info, err := retry.Value(ctx, asks, func(ctx context.Context) (*natsjs.ObjectInfo, error) {
		return b.objects.find(ctx, b.lease.shard, name)
	})
	return info, plain(err)
}

// open returns a local copy, which it makes if there is none.
func (b *leaseBlobs) open(ctx context.Context, info *natsjs.ObjectInfo) (*os.File, error) {
	if f, err := b.objects.cache.open(b.lease.shard, info.Digest); err == nil {
		return f, nil
	}
	return b.copyLocally(func(w io.Writer) error { return b.objects.download(ctx, info, w) })
}

// copyLocally returns a new local file with the contents that fill writes.
func (b *leaseBlobs) copyLocally(fill func(io.Writer) error) (*os.File, error) {
	f, err := b.objects.cache.create()
	if err != nil {
		return nil, err
	}
	if err = errors.Join(fill(f), f.whole()); err == nil {
		err = f.keep(b.lease.shard)
	}
	if err != nil {
		f.abandon()
		return nil, err
	}
	return f.File, nil
}

// getSecond opens the copy of a blob in Config.SecondPlace. first is the error of the
// object store.
func (b *leaseBlobs) getSecond(ctx context.Context, name string, first error) (*os.File, error) {
	f, err := b.copyLocally(func(w io.Writer) error {
		return b.objects.second.get(b.lease.shard, name, disk.ContextWriter(ctx, w))
	})
	if errors.Is(err, journal.ErrNoBlob) {
		return nil, first
	}
	if err != nil {
		return nil, errors.Join(first, fmt.Errorf("reading the copy in the second place: %w", err))
	}
	b.lease.backend.cfg.Logger.Error("a blob was read from the second place", "shard", b.lease.shard, "name", name,
		"error", b.lease.backend.cfg.redact(first.Error()))
	return f, nil
}

// Blobs implements [journal.Lease]. It also lists blobs that NATS has lost and that only
// Config.SecondPlace has.
func (b *leaseBlobs) Blobs(ctx context.Context) ([]journal.Blob, error) {
	blobs, err := b.list(ctx)
	slices.SortFunc(blobs, func(a, b journal.Blob) int { return cmp.Compare(a.Name, b.Name) })
	return blobs, wrapf(b.lease.explain(ctx, err), "list blobs of shard %d", b.lease.shard)
}

func (b *leaseBlobs) list(ctx context.Context) (blobs []journal.Blob, err error) {
	var infos []*natsjs.ObjectInfo
	for a := range asks.Attempts(ctx, &err) {
		if err = b.lease.usable(a.Context()); err == nil {
			infos, err = b.listStored(a.Context())
		}
	}
	for _, info := range infos {
		_, name, _ := strings.Cut(info.Name, "/")
		blobs = append(blobs, journal.Blob{Name: name, Size: int64(info.Size), Time: info.ModTime})
	}
	if err == nil {
		b.objects.cache.keepOnly(b.lease.shard, infos)
	}
	if b.objects.second == nil || err != nil && !errors.Is(err, journal.ErrDamaged) {
		return blobs, err
	}
	copies, secondErr := b.objects.second.list(b.lease.shard)
	if err = errors.Join(err, secondErr); len(copies) > 0 {
		err = nil
	}
	for _, c := range copies {
		if !slices.ContainsFunc(blobs, func(have journal.Blob) bool { return have.Name == c.Name }) {
			blobs = append(blobs, c)
		}
	}
	return blobs, err
}

// listStored lists the blobs of the object store. The first time it makes sure that the
// answer does not come from an old leader, which may lack blobs: the engine never looks
// for a blob that was not listed when the owner began.
func (b *leaseBlobs) listStored(ctx context.Context) ([]*natsjs.ObjectInfo, error) {
	if !b.listed.Load() {
		if err := b.objects.barrier(ctx); err != nil {
			return nil, b.objects.deleted(err)
		}
		b.listed.Store(true)
	}
	return b.objects.list(ctx, b.lease.shard)
}

// Delete implements [journal.Lease].
func (b *leaseBlobs) Delete(ctx context.Context, name string) error {
	err := b.lease.explain(ctx, b.delete(ctx, name))
	return wrapf(err, "delete blob %q of shard %d", name, b.lease.shard)
}

func (b *leaseBlobs) delete(ctx context.Context, name string) error {
	if err := disk.CheckBlobName(name); err != nil {
		return err
	}
	if err := b.lease.lock(ctx, b.lease.changing); err != nil {
		return err
	}
	defer func() { <-b.lease.changing }()
	info, err := b.findOwned(ctx, name)
	if err != nil && !errors.Is(err, journal.ErrNoBlob) && !errors.Is(err, errDescription) {
		return err
	}
	absent := errors.Is(err, journal.ErrNoBlob)
	// Remove the second copy first: a blob that only the second place has would count
	// as lost in NATS, and be listed.
	if b.objects.second != nil {
		if err := b.objects.second.remove(b.lease.shard, name); err != nil {
			return fmt.Errorf("removing the copy in the second place: %w", err)
		}
	}
	if absent {
		return nil
	}
	if info != nil {
		b.objects.cache.drop(b.lease.shard, info.Digest)
	}
	return b.objects.remove(ctx, b.lease.shard, info, name)
}
