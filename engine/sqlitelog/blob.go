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
	"zombiezen.com/go/sqlite"
)

// tmpPrefix marks files that are being written; no blob's name starts with a dot.
const tmpPrefix = ".tmp-"

// blobPath returns the file of a blob. A dot at the start would hide it or lead
// out of the folder; one at the end is dropped by Windows.
func (l *lease) blobPath(name string) (string, error) {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
	}
	if name == "" || len(name) > 200 || strings.ContainsFunc(name, other) {
		return "", errors.New("the name must be 1 to 200 of a-z, 0-9, dot and dash")
	}
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
		return "", errors.New("the name must not start or end with a dot")
	}
	return filepath.Join(l.dir, "blobs", name), nil
}

// Put implements [journal.Lease].
func (l *lease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	path, err := l.blobPath(name)
	if err == nil {
		err = l.put(ctx, path, write)
	}
	if err != nil {
		return fmt.Errorf("put blob %q: %w", name, err)
	}
	return nil
}

func (l *lease) put(ctx context.Context, path string, write func(io.Writer) error) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tmpPrefix) // with mode 0600
	if err != nil {
		return describe(dir, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone if all went well, and swept later if not
	defer f.Close()
	w := bufio.NewWriterSize(contextWriter{ctx, f}, 64<<10)
	if err := errors.Join(write(w), w.Flush()); err != nil {
		return describe(path, err)
	}
	// Also without full durability: a name may reach the disk before contents.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return describe(path, err)
	}
	return l.changeBlobs(ctx, func() error {
		if err := os.Rename(f.Name(), path); err != nil {
			return describe(path, err)
		}
		return describe(path, syncDir(dir))
	})
}

// changeBlobs makes a change that no backup sees half of.
func (l *lease) changeBlobs(ctx context.Context, change func() error) error {
	if err := l.pass(ctx, l.gate); err != nil {
		return err
	}
	defer func() { <-l.gate }()
	if err := l.owned(ctx); err != nil {
		return err
	}
	if l.durability != Full {
		// A snapshot must not outlive the entries that it was made of.
		if err := l.pass(ctx, l.writer.turn); err != nil {
			return err
		}
		err := l.writer.sync()
		<-l.writer.turn
		if err != nil {
			return describe(l.path, err)
		}
	}
	return change()
}

// owned checks that no other owner has taken over.
func (l *lease) owned(ctx context.Context) error {
	var epoch int64
	err := l.reading(ctx, func(conn *sqlite.Conn) (err error) {
		epoch, err = number(conn, "SELECT epoch FROM meta")
		return err
	})
	if err != nil {
		return describe(l.path, err)
	}
	if uint64(epoch) != l.epoch {
		return l.takenOver()
	}
	return nil
}

// Get implements [journal.Lease].
func (l *lease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	path, err := l.blobPath(name)
	if err == nil {
		err = l.usable(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("get blob %q: %w", name, journal.ErrNoBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return f, nil
}

// Blobs implements [journal.Lease].
func (l *lease) Blobs(ctx context.Context) ([]journal.Blob, error) {
	if err := l.usable(ctx); err != nil {
		return nil, fmt.Errorf("list blobs of %s: %w", l.dir, err)
	}
	entries, err := os.ReadDir(filepath.Join(l.dir, "blobs"))
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
func (l *lease) Delete(ctx context.Context, name string) error {
	path, err := l.blobPath(name)
	if err == nil {
		err = l.changeBlobs(ctx, func() error {
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

// sweepBlobs removes what was being written when a process ended, and returns
// how many blobs there are.
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

// contextWriter stops a long write when its context ends.
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
