// Package disk has what the backends of a journal share: for files, for the names of blobs, for locks, and
// for errors. It opens files that the engine accesses without SQLite. Open is a variable, so that tests can
// simulate a disk that fails: see package faultdisk.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Sync writes everything to the disk. When it returns nil, the data survives a power
	// failure.
	Sync() error
}

// Open opens an existing file for reading and writing. Only tests replace it.
var Open = func(path string) (File, error) { return os.OpenFile(path, os.O_RDWR, 0) }

// TempPrefix is the prefix of files that are being written. No name of a blob starts with a dot.
const TempPrefix = ".tmp-"

// TryWrite writes, syncs and removes a temporary file in the folder, to find out whether that is
// possible and there is space on the disk.
func TryWrite(dir string) error {
	f, err := os.CreateTemp(dir, TempPrefix)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// CheckBlobName returns an error if a blob can't have the name. A dot at the start would hide the
// file of the blob or lead out of its folder; Windows drops a dot at the end.
func CheckBlobName(name string) error {
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

// Lock acquires a lock of a lease, which is a channel with a capacity of one. Goroutines get the lock in the
// order in which they wait for it. It fails if usable does, before or afterwards, or if the context ends.
func Lock(ctx context.Context, lock chan struct{}, usable func(context.Context) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	select {
	case lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := usable(ctx); err != nil {
		<-lock
		return err
	}
	return nil
}

// Remove removes a file. It succeeds if there is none.
func Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Wrapf adds the text before the text of an error. It returns nil for a nil error.
func Wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// ContextWriter returns a writer that fails when the context has ended. The error is that of the
// context, and its cause if it has one.
func ContextWriter(ctx context.Context, w io.Writer) io.Writer { return contextWriter{ctx, w} }

type contextWriter struct {
	ctx context.Context //nolint:containedctx // it is that of one call
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		if cause := context.Cause(c.ctx); !errors.Is(cause, err) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return 0, err
	}
	return c.w.Write(p)
}
