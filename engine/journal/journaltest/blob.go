package journaltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

var blobTests = group[test]{"blobs", []test{
	{"a blob is read back as it was written, after a restart too", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		put(t, l, "snapshot-1.0", "one")
		put(t, l, "empty", "")
		wantBlob(t, l, "snapshot-1.0", "one")
		l = f.reopen(t, l)
		wantBlob(t, l, "snapshot-1.0", "one")
		wantBlob(t, l, "empty", "")
	})},
	{"a blob may be larger than an entry", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		text := strings.Repeat("0123456789abcdef", 204_800)
		put(t, l, "large", text)
		wantBlob(t, l, "large", text)
	})},
	{"a blob that is put again is replaced", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		put(t, l, "a", "a longer text")
		put(t, l, "a", "short")
		wantBlob(t, l, "a", "short")
		wantNames(t, l, "a")
	})},
	{"a reader of a replaced or deleted blob reads on or fails, and never mixes", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		put(t, l, "a", "old")
		r, err := l.Get(t.Context(), "a")
		wantNoError(t, "Get", err)
		defer r.Close()
		if l.Put(t.Context(), "a", writeText("new")) != nil {
			return // where open files can't be replaced
		}
		if got, err := io.ReadAll(r); err == nil && string(got) != "old" && string(got) != "new" {
			t.Errorf("reads %q; want old or new", got)
		}
	})},
	{"blobs are listed by name, with size and time", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		wantNames(t, l)
		for _, name := range []string{"b", "a-2", "c.zst", "a-10"} {
			put(t, l, name, name)
		}
		wantNames(t, l, "a-10", "a-2", "b", "c.zst")
		blobs, err := l.Blobs(t.Context())
		wantNoError(t, "Blobs", err)
		for _, b := range blobs {
			if b.Size != int64(len(b.Name)) {
				t.Errorf("%s has size %d; want %d", b.Name, b.Size, len(b.Name))
			}
			// real clock: an hour is longer than the test binary may run
			if age := time.Since(b.Time); age > time.Hour || age < -time.Hour {
				t.Errorf("%s is from %v; want about now", b.Name, b.Time)
			}
		}
	})},
	{"a deleted blob is gone, and deleting it again is no error", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		put(t, l, "a", "1")
		put(t, l, "b", "2")
		for range 2 {
			wantNoError(t, "Delete", l.Delete(t.Context(), "a"))
		}
		wantNames(t, l, "b")
		_, err := l.Get(t.Context(), "a")
		wantError(t, "Get of a deleted blob", err, journal.ErrNoBlob)
		l = f.reopen(t, l)
		wantNames(t, l, "b")
	})},
	{"a blob that is not there is ErrNoBlob", func(t *testing.T, f *fixture) {
		_, err := f.lease(t).Get(t.Context(), "a")
		wantError(t, "Get", err, journal.ErrNoBlob)
	}},
	{"a write that fails leaves the old blob", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		put(t, l, "a", "old")
		broken := errors.New("broken")
		for _, name := range []string{"a", "new"} {
			err := l.Put(t.Context(), name, func(w io.Writer) error {
				w.Write(bytes.Repeat([]byte("x"), 200_000)) //nolint:errcheck // it fails below
				return broken
			})
			wantError(t, "Put with a write that fails", err, broken)
		}
		wantBlob(t, l, "a", "old")
		wantNames(t, l, "a")
		l = f.reopen(t, l)
		wantBlob(t, l, "a", "old")
		wantNames(t, l, "a")
	})},
	{"a blob is not seen before it is whole", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		put(t, l, "a", "old")
		putFrom(t, l, "a", func(w io.Writer) error {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 200_000)); err != nil {
				return err
			}
			wantBlob(t, l, "a", "old")
			wantNames(t, l, "a")
			return nil
		})
		wantBlob(t, l, "a", string(bytes.Repeat([]byte("x"), 200_000)))
	})},
	{"appends go on while a blob is written", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		putFrom(t, l, "a", func(w io.Writer) error {
			appendN(t, l, 0, 3)
			return writeText("text")(w)
		})
		wantEntries(t, l, 1, 3)
	})},
	{"a canceled put leaves the old blob", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		put(t, l, "a", "old")
		ctx, cancel := context.WithCancel(t.Context())
		err := l.Put(ctx, "a", func(w io.Writer) error {
			cancel()
			return writeText("new")(w)
		})
		wantError(t, "Put with a canceled context", err, context.Canceled)
		wantBlob(t, l, "a", "old")
	})},
	{"other names are refused", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		for _, name := range []string{"", "A", "a/b", "../a", "a b", "a_b", "ä", "a\x00"} {
			if err := l.Put(t.Context(), name, writeText("x")); err == nil {
				t.Errorf("Put(%q) succeeds", name)
			}
		}
		wantNames(t, l)
	})},
}}
