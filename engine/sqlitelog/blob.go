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

	"github.com/tideover/tideover/engine/journal"
)

// tmpPrefix is the prefix of files that are being written. No name of a blob starts with a dot.
const tmpPrefix = ".tmp-"

// blobPath returns the path of a blob's file, or an error if the name is not allowed. A dot at the
// start would hide the file or lead out of the folder; Windows drops a dot at the end.
func blobPath(dir, name string) (string, error) {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
	}
	if name == "" || len(name) > 200 || strings.ContainsFunc(name, other) {
		return "", errors.New("the name must be 1 to 200 of a-z, 0-9, dot and dash")
	}
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
		return "", errors.New("the name must not start or end with a dot")
	}
	return filepath.Join(dir, "blobs", name), nil
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
	f, err := os.CreateTemp(dir, tmpPrefix) // with mode 0600
	if err != nil {
		return describe(dir, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after success it is renamed already; otherwise sweepBlobs removes it later
	defer f.Close()
	w := bufio.NewWriterSize(contextWriter{ctx, f}, 64<<10)
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
		return describe(path, syncDir(dir))
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
			return syncDir(filepath.Dir(path))
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
		if !strings.HasPrefix(e.Name(), tmpPrefix) {
			stored++
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return 0, err
		}
	}
	return stored, nil
}

// contextWriter is a writer that fails when its context has ended.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}
