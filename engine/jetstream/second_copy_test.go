package jetstream

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

func FuzzSecondPlace(f *testing.F) {
	f.Add([]byte("contents"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, contents []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "contents")
		if err := os.WriteFile(path, contents, 0o600); err != nil {
			t.Fatal(err)
		}
		from, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		s := &secondCopy{dir: filepath.Join(dir, "name")}
		tmp, err := s.write(t.Context(), 1, from)
		if err == nil {
			err = s.put(1, "a", tmp)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := s.get(1, "a", &got); err != nil || !bytes.Equal(got.Bytes(), contents) {
			t.Errorf("get = %q, %v; want %q", got.Bytes(), err, contents)
		}
		if b, _, err := s.stat(1, "a"); err != nil || b.Size != int64(len(contents)) {
			t.Errorf("stat = %+v, %v; want %d bytes", b, err, len(contents))
		}
	})
}

func FuzzSecondHeader(f *testing.F) {
	f.Add([]byte("tideover-blob-1 3 00\nabc"))
	f.Add([]byte("something else\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _, _ = secondHeader(bufio.NewReader(bytes.NewReader(text))) // never panics
		s := &secondCopy{dir: filepath.Join(t.TempDir(), "name")}
		path := s.path(0, "a")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := s.get(0, "a", &got); err != nil && !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("get of %q = %v; want %v", text, err, journal.ErrDamaged)
		}
	})
}
