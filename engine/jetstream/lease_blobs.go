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
	own     *ownership
	log     *leaseLog
	objects *objects
	listed  atomic.Bool // the blobs were listed once under this lease
}

// put stores a blob, and copies it to Config.SecondPlace.
func (b *leaseBlobs) put(ctx context.Context, name string, write func(io.Writer) error) error {
	err := b.store(ctx, name, write)
	if err == nil {
		b.copyToSecond(ctx)
	}
	return err
}

func (b *leaseBlobs) store(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := cmp.Or(disk.CheckBlobName(name), b.own.usable(ctx)); err != nil {
		return err
	}
	ctx, cancel := b.own.during(ctx)
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
	u := newUpload(b.objects, b.own.shard, b.own.epoch, name, f)
	if err := u.send(ctx, f); err != nil {
		u.abandon(ctx)
		return err
	}
	return b.replace(ctx, name, u, f)
}

// replace makes the upload the blob with the name, and removes the blob that had the
// name before.
func (b *leaseBlobs) replace(ctx context.Context, name string, u *upload, f *localFile) error {
	if err := b.own.lock(ctx, b.own.changing); err != nil {
		return err
	}
	defer func() { <-b.own.changing }()
	old, err := b.findOwned(ctx, name)
	if err != nil && !errors.Is(err, journal.ErrNoBlob) && !errors.Is(err, errDescription) {
		return err
	}
	if err := u.finish(ctx, b.own.shard, name); err != nil {
		if errors.Is(err, errConflict) {
			err = fmt.Errorf("%w: another owner has removed the parts of the blob", journal.ErrStale)
		}
		return err
	}
	if err := f.keep(b.own.shard); err != nil {
		b.own.backend.cfg.Logger.Warn("a local copy of a blob can't be kept", "name", name, "error", err)
	}
	if err := b.own.storeEnd(ctx, b.log.last.Load()); err != nil {
		b.own.warn("the end of the log can't be written to the bucket", err)
	}
	if old == nil {
		return nil
	}
	if old.Digest != u.info.Digest {
		b.objects.cache.drop(b.own.shard, old.Digest)
	}
	if err := b.objects.removeChunks(ctx, old.NUID); err != nil {
		b.own.backend.cfg.Logger.Warn("a replaced blob can't be removed; the next owner removes it", "name", name, "error", err)
	}
	return nil
}

// findOwned finds a blob that is to be changed, if we still own the shard.
func (b *leaseBlobs) findOwned(ctx context.Context, name string) (info *natsjs.ObjectInfo, err error) {
	for a := range asks.Attempts(ctx, &err) {
		if err = b.own.confirm(a.Context()); err == nil {
			info, err = b.objects.find(a.Context(), b.own.shard, name)
		}
	}
	return info, plain(err)
}

// get opens a local copy of a blob.
func (b *leaseBlobs) get(ctx context.Context, name string) (f *os.File, err error) {
	ctx, cancel := b.own.during(ctx)
	defer cancel()
	for {
		if err := cmp.Or(disk.CheckBlobName(name), b.own.usable(ctx)); err != nil {
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
		return b.objects.find(ctx, b.own.shard, name)
	})
	return info, plain(err)
}

// open returns a local copy, which it makes if there is none.
func (b *leaseBlobs) open(ctx context.Context, info *natsjs.ObjectInfo) (*os.File, error) {
	if f, err := b.objects.cache.open(b.own.shard, info.Digest); err == nil {
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
		err = f.keep(b.own.shard)
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
		return b.objects.second.get(b.own.shard, name, disk.ContextWriter(ctx, w))
	})
	if errors.Is(err, journal.ErrNoBlob) {
		return nil, first
	}
	if err != nil {
		return nil, errors.Join(first, fmt.Errorf("reading the copy in the second place: %w", err))
	}
	b.own.backend.cfg.Logger.Error("a blob was read from the second place", "shard", b.own.shard, "name", name,
		"error", b.own.backend.cfg.redact(first.Error()))
	return f, nil
}

// list returns the blobs of the shard.
func (b *leaseBlobs) list(ctx context.Context) (blobs []journal.Blob, err error) {
	var infos []*natsjs.ObjectInfo
	for a := range asks.Attempts(ctx, &err) {
		if err = b.own.usable(a.Context()); err == nil {
			infos, err = b.listStored(a.Context())
		}
	}
	for _, info := range infos {
		_, name, _ := strings.Cut(info.Name, "/")
		blobs = append(blobs, journal.Blob{Name: name, Size: int64(info.Size), Time: info.ModTime})
	}
	if err == nil {
		b.objects.cache.keepOnly(b.own.shard, infos)
	}
	if b.objects.second == nil || err != nil && !errors.Is(err, journal.ErrDamaged) {
		return blobs, err
	}
	copies, secondErr := b.objects.second.list(b.own.shard)
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
	return b.objects.list(ctx, b.own.shard)
}

func (b *leaseBlobs) delete(ctx context.Context, name string) error {
	if err := disk.CheckBlobName(name); err != nil {
		return err
	}
	if err := b.own.lock(ctx, b.own.changing); err != nil {
		return err
	}
	defer func() { <-b.own.changing }()
	info, err := b.findOwned(ctx, name)
	if err != nil && !errors.Is(err, journal.ErrNoBlob) && !errors.Is(err, errDescription) {
		return err
	}
	absent := errors.Is(err, journal.ErrNoBlob)
	// Remove the second copy first: a blob that only the second place has would count
	// as lost in NATS, and be listed.
	if b.objects.second != nil {
		if err := b.objects.second.remove(b.own.shard, name); err != nil {
			return fmt.Errorf("removing the copy in the second place: %w", err)
		}
	}
	if absent {
		return nil
	}
	if info != nil {
		b.objects.cache.drop(b.own.shard, info.Digest)
	}
	return b.objects.remove(ctx, b.own.shard, info, name)
}

// copyToSecond copies every blob to Config.SecondPlace that is missing there. It logs an
// error.
func (b *leaseBlobs) copyToSecond(ctx context.Context) {
	if b.objects.second == nil {
		return
	}
	infos, err := retry.Value(ctx, asks, func(ctx context.Context) ([]*natsjs.ObjectInfo, error) {
		return b.objects.list(ctx, b.own.shard)
	})
	for _, info := range infos {
		err = errors.Join(err, b.copyOne(ctx, info))
	}
	b.objects.second.failed.Store(&err)
	if err != nil {
		b.own.backend.cfg.Logger.Error("some blobs could not be copied to the second place", "shard", b.own.shard, "error", b.own.backend.cfg.redact(err.Error()))
	}
}

// copyOne copies a blob to Config.SecondPlace, unless it is there already.
func (b *leaseBlobs) copyOne(ctx context.Context, info *natsjs.ObjectInfo) error {
	_, name, _ := strings.Cut(info.Name, "/")
	second := b.objects.second
	if _, digest, err := second.stat(b.own.shard, name); err == nil && digest == info.Digest {
		return nil
	}
	ctx, cancel := b.own.during(ctx)
	defer cancel()
	f, err := b.open(ctx, info)
	if err != nil {
		return err
	}
	defer f.Close()
	tmp, err := second.write(ctx, b.own.shard, f)
	defer os.Remove(tmp) //nolint:errcheck // gone if all went well, and removed later if not
	if err != nil {
		return err
	}
	if err := b.own.lock(ctx, b.own.changing); err != nil {
		return err
	}
	defer func() { <-b.own.changing }()
	now, err := b.findOwned(ctx, name)
	if errors.Is(err, journal.ErrNoBlob) || err == nil && now.NUID != info.NUID {
		return nil // the blob was deleted or replaced meanwhile
	}
	if err != nil {
		return err
	}
	return second.put(b.own.shard, name, tmp)
}

// sweep removes the chunks of blobs that earlier owners have not finished. It runs in
// the background; if it fails, the next owner tries again.
func (b *leaseBlobs) sweep() {
	err := asks.Do(b.own.life, func(ctx context.Context) error { return b.objects.sweep(ctx, b.own.shard, b.own.epoch) })
	if err != nil && b.own.life.Err() == nil {
		b.own.warn("unfinished blobs can't be removed", err)
	}
}
