package sqlitelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

// fillUp appends until the disk is full, frees space, and appends again. It checks that no entry is
// lost, and that a failed append has stored nothing.
func fillUp(l *lease, makeRoom func() error) error {
	ctx := context.Background()
	data := func(seq uint64) []byte { return bytes.Repeat([]byte{byte(seq)}, 50_000) }
	var last uint64
	var err error
	for range 10_000 {
		if _, err = l.Append(ctx, last, testID(last+1), data(last+1)); err != nil {
			break
		}
		last++
	}
	if !errors.Is(err, journal.ErrFull) || !strings.Contains(err.Error(), l.path) || !strings.Contains(err.Error(), "bytes free") {
		return fmt.Errorf("append after %d = %w; want %w with the path and the room", last, err, journal.ErrFull)
	}
	for range 3 {
		_, got, err := l.Bounds(ctx)
		if err != nil || got != last {
			return fmt.Errorf("the last entry is %d, %w; want %d", got, err, last)
		}
		if _, err := l.Append(ctx, last, testID(last+1), data(last+1)); !errors.Is(err, journal.ErrFull) {
			return fmt.Errorf("repeated append = %w; want %w", err, journal.ErrFull)
		}
	}
	if err := makeRoom(); err != nil {
		return err
	}
	for range 3 {
		if _, err := l.Append(ctx, last, testID(last+1), data(last+1)); err != nil {
			return fmt.Errorf("append when there is room again: %w", err)
		}
		last++
	}
	var n uint64
	for e, err := range l.Read(ctx, 1) {
		n++
		if err != nil || e.Seq != n || !bytes.Equal(e.Data, data(n)) {
			return fmt.Errorf("entry %d where %d is next, or its contents differ: %w", e.Seq, n, err)
		}
	}
	if n != last {
		return fmt.Errorf("reading ends at %d; want %d", n, last)
	}
	return nil
}

// fillBlob puts a blob that does not fit.
func fillBlob(l *lease) error {
	ctx := context.Background()
	put := func(size int) error {
		return l.Put(ctx, "blob", func(w io.Writer) error {
			_, err := w.Write(make([]byte, size))
			return err
		})
	}
	if err := put(100); err != nil {
		return err
	}
	if err := put(100 << 20); !errors.Is(err, journal.ErrFull) {
		return fmt.Errorf("put a blob that does not fit = %w; want %w", err, journal.ErrFull)
	}
	blobs, err := l.Blobs(ctx)
	if err != nil || len(blobs) != 1 || blobs[0].Size != 100 {
		return fmt.Errorf("blobs = %v, %w; want the old one", blobs, err)
	}
	return nil
}

// This test runs everywhere. A test with a full disk needs a separate file system.
func TestADatabaseThatMayNotGrowIsFull(t *testing.T) {
	l := openTest(t, t.TempDir(), Full)
	if err := pragma(l.writer.conn, "max_page_count = 500"); err != nil {
		t.Fatal(err)
	}
	err := fillUp(l, func() error { return pragma(l.writer.conn, "max_page_count = 5000") })
	if err != nil {
		t.Error(err)
	}
}
