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

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// checkBlobName refuses what is not a name by the contract.
func checkBlobName(name string) error {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
	}
	if name == "" || len(name) > 200 || strings.ContainsFunc(name, other) {
		return errors.New("the name must be 1 to 200 of a-z, 0-9, dot and dash")
	}
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
		return errors.New("the name must not start or end with a dot")
	}
	return nil
}

// Put implements [journal.Lease]. A copy in the second place that fails is logged
// and made again at the next Put: work goes on without it.
func (l *lease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	err := checkBlobName(name)
	if err == nil {
		err = l.put(ctx, name, write)
	}
	if err != nil {
		return fmt.Errorf("put blob %q of shard %d: %w", name, l.shard, l.ended(ctx, err))
	}
	l.copyToSecond(ctx)
	return nil
}

func (l *lease) put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	ctx, cancel := l.during(ctx)
	defer cancel()
	f, err := l.objects().cache.create()
	if err != nil {
		return err
	}
	defer f.abandon()
	if err := write(contextWriter{ctx, f}); err != nil {
		return err
	}
	if err := errors.Join(context.Cause(ctx), f.whole()); err != nil {
		return err
	}
	u := &upload{objects: l.objects(), info: l.objects().newInfo(newObjectID(l.shard, l.epoch), l.shard, name, f)}
	if err := u.send(ctx, f); err != nil {
		u.abandon(ctx)
		return err
	}
	return l.replace(ctx, name, u, f)
}

func (l *lease) objects() *objects { return l.log.objects }

// replace makes what was uploaded the blob, and removes the one before.
func (l *lease) replace(ctx context.Context, name string, u *upload, f *localFile) error {
	if err := l.pass(ctx, l.gate); err != nil {
		return err
	}
	defer func() { <-l.gate }()
	old, err := l.findOwned(ctx, name)
	if err != nil && !errors.Is(err, journal.ErrNoBlob) && !errors.Is(err, errDescription) {
		return err
	}
	if err := u.finish(ctx, l.shard, name); err != nil {
		if errors.Is(err, errConflict) {
			err = fmt.Errorf("%w: another owner has removed the parts of the blob", journal.ErrStale)
		}
		return err
	}
	if err := f.keep(l.shard); err != nil {
		l.log.cfg.Logger.Warn("a local copy of a blob can't be kept", "name", name, "error", err)
	}
	if err := l.noteEnd(ctx); err != nil {
		l.log.cfg.Logger.Warn("the end of the log can't be noted", "shard", l.shard, "error", l.log.cfg.redact(err.Error()))
	}
	if old == nil {
		return nil
	}
	if old.Digest != u.info.Digest {
		l.objects().cache.drop(l.shard, old.Digest)
	}
	if err := l.objects().removeChunks(ctx, old.NUID); err != nil {
		l.log.cfg.Logger.Warn("the blob before can't be removed; the next owner does it", "name", name, "error", err)
	}
	return nil
}

// findOwned finds a blob that is going to be changed, if the shard is still ours.
func (l *lease) findOwned(ctx context.Context, name string) (info *natsjs.ObjectInfo, err error) {
	for a := range asks.Attempts(ctx, &err) {
		if err = l.owned(a.Context()); err == nil {
			info, err = l.objects().find(a.Context(), l.shard, name)
		}
	}
	return info, plain(err)
}

// Get implements [journal.Lease]. What it returns is a file, and so an
// [io.ReaderAt].
func (l *lease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	err := checkBlobName(name)
	var f *os.File
	if err == nil {
		f, err = l.get(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q of shard %d: %w", name, l.shard, l.ended(ctx, err))
	}
	return f, nil
}

func (l *lease) get(ctx context.Context, name string) (f *os.File, err error) {
	ctx, cancel := l.during(ctx)
	defer cancel()
	for {
		if err := l.usable(ctx); err != nil {
			return nil, err
		}
		info, err := l.find(ctx, name)
		if err == nil {
			f, err = l.open(ctx, info)
		}
		if errors.Is(err, journal.ErrDamaged) {
			now, findErr := l.find(ctx, name)
			if errors.Is(findErr, journal.ErrNoBlob) || findErr == nil && info != nil && now.NUID != info.NUID {
				continue // it was replaced or deleted meanwhile
			}
		}
		lost := errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrNoBlob)
		if l.objects().second == nil || !lost {
			return f, err
		}
		return l.getSecond(ctx, name, err)
	}
}

func (l *lease) find(ctx context.Context, name string) (info *natsjs.ObjectInfo, err error) {
	for a := range asks.Attempts(ctx, &err) {
		info, err = l.objects().find(a.Context(), l.shard, name)
	}
	return info, plain(err)
}

// open returns a local copy, which it makes if there is none.
func (l *lease) open(ctx context.Context, info *natsjs.ObjectInfo) (*os.File, error) {
	if f, err := l.objects().cache.open(l.shard, info.Digest); err == nil {
		return f, nil
	}
	return l.copyLocally(func(w io.Writer) error { return l.objects().download(ctx, info, w) })
}

// copyLocally makes a local copy of what fill writes.
func (l *lease) copyLocally(fill func(io.Writer) error) (*os.File, error) {
	f, err := l.objects().cache.create()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(fill(f), f.whole()); err != nil {
		f.abandon()
		return nil, err
	}
	if err := f.keep(l.shard); err != nil {
		f.abandon()
		return nil, err
	}
	return f.File, nil
}

// getSecond opens the copy in the second place, when the first one can't be had.
func (l *lease) getSecond(ctx context.Context, name string, first error) (*os.File, error) {
	f, err := l.copyLocally(func(w io.Writer) error {
		return l.objects().second.get(l.shard, name, contextWriter{ctx, w})
	})
	if errors.Is(err, journal.ErrNoBlob) {
		return nil, first
	}
	if err != nil {
		return nil, errors.Join(first, fmt.Errorf("second place: %w", err))
	}
	l.log.cfg.Logger.Error("a blob was read from the second place", "shard", l.shard, "name", name,
		"error", l.log.cfg.redact(first.Error()))
	return f, nil
}

// Blobs implements [journal.Lease]. What only the second place has was lost by
// NATS, and is listed too.
func (l *lease) Blobs(ctx context.Context) ([]journal.Blob, error) {
	blobs, err := l.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list blobs of shard %d: %w", l.shard, l.ended(ctx, err))
	}
	slices.SortFunc(blobs, func(a, b journal.Blob) int { return cmp.Compare(a.Name, b.Name) })
	return blobs, nil
}

func (l *lease) list(ctx context.Context) (blobs []journal.Blob, err error) {
	var infos []*natsjs.ObjectInfo
	for a := range asks.Attempts(ctx, &err) {
		if err = l.usable(a.Context()); err == nil {
			infos, err = l.listStored(a.Context())
		}
	}
	for _, info := range infos {
		_, name, _ := strings.Cut(info.Name, "/")
		blobs = append(blobs, journal.Blob{Name: name, Size: int64(info.Size), Time: info.ModTime})
	}
	if err == nil {
		l.objects().cache.keepOnly(l.shard, infos)
	}
	if l.objects().second == nil || err != nil && !errors.Is(err, journal.ErrDamaged) {
		return blobs, err
	}
	copies, secondErr := l.objects().second.list(l.shard)
	if err = errors.Join(err, secondErr); len(copies) > 0 {
		err = nil
	}
	for _, b := range copies {
		if !slices.ContainsFunc(blobs, func(have journal.Blob) bool { return have.Name == b.Name }) {
			blobs = append(blobs, b)
		}
	}
	return blobs, err
}

// listStored lists what the object store has. The first time it makes sure that
// nothing is missing because its leader was replaced without knowing: what is not
// listed when an owner begins is never looked for.
func (l *lease) listStored(ctx context.Context) ([]*natsjs.ObjectInfo, error) {
	if !l.listed.Load() {
		if err := l.objects().barrier(ctx); err != nil {
			return nil, l.objects().deleted(err)
		}
		l.listed.Store(true)
	}
	return l.objects().list(ctx, l.shard)
}

// Delete implements [journal.Lease].
func (l *lease) Delete(ctx context.Context, name string) error {
	err := checkBlobName(name)
	if err == nil {
		err = l.delete(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("delete blob %q of shard %d: %w", name, l.shard, l.ended(ctx, err))
	}
	return nil
}

func (l *lease) delete(ctx context.Context, name string) error {
	if err := l.pass(ctx, l.gate); err != nil {
		return err
	}
	defer func() { <-l.gate }()
	info, err := l.findOwned(ctx, name)
	if err != nil && !errors.Is(err, journal.ErrNoBlob) && !errors.Is(err, errDescription) {
		return err
	}
	absent := errors.Is(err, journal.ErrNoBlob)
	// First, because what only the second place has counts as lost.
	if l.objects().second != nil {
		if err := l.objects().second.remove(l.shard, name); err != nil {
			return fmt.Errorf("second place: %w", err)
		}
	}
	if absent {
		return nil
	}
	if info != nil {
		l.objects().cache.drop(l.shard, info.Digest)
	}
	return l.objects().remove(ctx, l.shard, info, name)
}
