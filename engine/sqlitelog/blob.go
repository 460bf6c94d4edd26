package sqlitelog

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// blobPath returns the path of a blob's file, or an error if the name is not allowed.
func blobPath(dir, name string) (string, error) {
	return filepath.Join(dir, "blobs", name), disk.CheckBlobName(name)
}

// leaseBlobs has the methods of a lease for blobs.
type leaseBlobs struct {
	lease *lease

	mu    sync.Mutex
	known map[string]blobRecord // the table blobs, by name
}

// Put implements [journal.Lease].
func (b *leaseBlobs) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	path, err := blobPath(b.lease.dir, name)
	if err == nil {
		err = b.put(ctx, path, write)
	}
	return disk.Wrapf(err, "put blob %q", name)
}

func (b *leaseBlobs) put(ctx context.Context, path string, write func(io.Writer) error) error {
	if err := b.lease.usable(ctx); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, disk.TempPrefix) // with mode 0600
	if err != nil {
		return describe(dir, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after success it is renamed already; otherwise sweepBlobs removes it later
	defer f.Close()
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(disk.ContextWriter(ctx, f), sum), 64<<10)
	if err := errors.Join(write(w), w.Flush()); err != nil {
		return describe(path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return describe(path, err)
	}
	record := blobRecord{size: info.Size(), sum: sum.Sum32(), summed: true}
	// Sync even without full durability: the name may reach the disk before the content.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return describe(path, err)
	}
	return b.changeBlobs(ctx, func() error {
		name := filepath.Base(path)
		if err := b.unregister(ctx, name); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), path); err != nil {
			return describe(path, err)
		}
		if err := disk.SyncDir(dir); err != nil {
			return describe(path, err)
		}
		return b.register(ctx, name, record)
	})
}

// changeBlobs calls change while no backup copies blobs, after checking that the lease is still
// valid.
func (b *leaseBlobs) changeBlobs(ctx context.Context, change func() error) error {
	if err := b.lease.lockChannel(ctx, b.lease.changing); err != nil {
		return err
	}
	defer func() { <-b.lease.changing }()
	if err := b.lease.confirm(ctx); err != nil {
		return err
	}
	if b.lease.durability != Full {
		// Sync the entries first: after a power failure there must be no snapshot without the
		// entries that it was made from.
		if err := b.change(ctx, "UPDATE meta SET epoch = epoch"); err != nil {
			return err
		}
	}
	return change()
}

// Get implements [journal.Lease].
func (b *leaseBlobs) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	record, ok := b.record(name)
	return openBlob(b.lease.dir, name, record, ok, b.lease.usable(ctx))
}

// openBlob opens the blob with a record; ok is false if there is none. If unusable is not nil, the blob
// can't be opened.
func openBlob(dir, name string, record blobRecord, ok bool, unusable error) (io.ReadCloser, error) {
	path, err := blobPath(dir, name)
	if err = cmp.Or(err, unusable); err == nil && !ok {
		err = journal.ErrNoBlob
	}
	var f *blobFile
	if err == nil {
		f, err = record.open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return f, nil
}

// Blobs implements [journal.Lease]. Files that are not registered are no blobs of this log: they belong
// to another one, or their process was killed before it could register them.
func (b *leaseBlobs) Blobs(ctx context.Context) ([]journal.Blob, error) {
	if err := b.lease.usable(ctx); err != nil {
		return nil, fmt.Errorf("list blobs of %s: %w", b.lease.dir, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var blobs []journal.Blob
	for _, name := range slices.Sorted(maps.Keys(b.known)) {
		blob := journal.Blob{Name: name, Size: b.known[name].size}
		info, err := os.Stat(filepath.Join(b.lease.dir, "blobs", name))
		if err == nil {
			blob.Time = info.ModTime()
		} else if !errors.Is(err, fs.ErrNotExist) { // Get reports that it is missing
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		blobs = append(blobs, blob)
	}
	return blobs, nil
}

// Delete implements [journal.Lease].
func (b *leaseBlobs) Delete(ctx context.Context, name string) error {
	path, err := blobPath(b.lease.dir, name)
	if err == nil {
		err = b.changeBlobs(ctx, func() error {
			if err := b.unregister(ctx, name); err != nil {
				return err
			}
			if err := disk.Remove(path); err != nil {
				return err
			}
			return disk.SyncDir(filepath.Dir(path))
		})
	}
	return disk.Wrapf(err, "delete blob %q", name)
}

// sweepBlobs removes files that were being written when a process ended.
func sweepBlobs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), disk.TempPrefix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
