package sqlitelog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// blobPath returns the path of a blob's file, or an error if the name is not allowed.
func blobPath(dir, name string) (string, error) {
	return filepath.Join(dir, "blobs", name), disk.CheckBlobName(name)
}

// leaseBlobs has the methods of a lease for blobs.
type leaseBlobs struct{ lease *lease }

// Put implements [journal.Lease].
func (b *leaseBlobs) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	path, err := blobPath(b.lease.dir, name)
	if err == nil {
		err = b.put(ctx, path, write)
	}
	if err != nil {
		return fmt.Errorf("put blob %q: %w", name, err)
	}
	return nil
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
	w := bufio.NewWriterSize(disk.ContextWriter(ctx, f), 64<<10)
	if err := errors.Join(write(w), w.Flush()); err != nil {
		return describe(path, err)
	}
	// Sync even without full durability: the name may reach the disk before the content.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return describe(path, err)
	}
	return b.changeBlobs(ctx, func() error {
		if err := os.Rename(f.Name(), path); err != nil {
			return describe(path, err)
		}
		return describe(path, disk.SyncDir(dir))
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
		if err := b.lease.lockChannel(ctx, b.lease.writer.turn); err != nil {
			return err
		}
		err := b.lease.writer.sync()
		<-b.lease.writer.turn
		if err != nil {
			return describe(b.lease.path, err)
		}
	}
	return change()
}

// Get implements [journal.Lease].
func (b *leaseBlobs) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	path, err := blobPath(b.lease.dir, name)
	if err == nil {
		err = b.lease.usable(ctx)
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = journal.ErrNoBlob
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return f, nil
}

// Blobs implements [journal.Lease].
func (b *leaseBlobs) Blobs(ctx context.Context) ([]journal.Blob, error) {
	if err := b.lease.usable(ctx); err != nil {
		return nil, fmt.Errorf("list blobs of %s: %w", b.lease.dir, err)
	}
	entries, err := os.ReadDir(filepath.Join(b.lease.dir, "blobs"))
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	var blobs []journal.Blob
	for _, e := range entries { // in the order of their names
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		blobs = append(blobs, journal.Blob{Name: e.Name(), Size: info.Size(), Time: info.ModTime()})
	}
	return blobs, nil
}

// Delete implements [journal.Lease].
func (b *leaseBlobs) Delete(ctx context.Context, name string) error {
	path, err := blobPath(b.lease.dir, name)
	if err == nil {
		err = b.changeBlobs(ctx, func() error {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return disk.SyncDir(filepath.Dir(path))
		})
	}
	if err != nil {
		return fmt.Errorf("delete blob %q: %w", name, err)
	}
	return nil
}

// sweepBlobs removes files that were being written when a process ended, and returns the number of
// blobs.
func sweepBlobs(dir string) (stored int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), disk.TempPrefix) {
			stored++
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return 0, err
		}
	}
	return stored, nil
}
