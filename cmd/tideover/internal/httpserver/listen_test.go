//go:build unix

package httpserver

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

func TestASocketIsForItsOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testfile.ShortDir(t), "new", "folder", "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o600, filepath.Dir(path): fs.ModeDir | 0o700, path + ".lock": 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if l.Addr().String() != path {
		t.Errorf("address %v, want %s", l.Addr(), path)
	}
	files, _ := os.ReadDir(filepath.Dir(path))
	if len(files) != 2 {
		t.Errorf("left in the folder: %v", files)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestOnlyASocketThatWasLeftBehindIsReplaced(t *testing.T) {
	t.Parallel()
	dir := testfile.ShortDir(t)
	for _, c := range []struct {
		name  string
		there func(path string) func()
		want  string // part of the expected error; empty means none
	}{
		{"nothing", func(string) func() { return func() {} }, ""},
		{"a socket without a listener", func(path string) func() {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			_ = l.Close()
			return func() {}
		}, ""},
		{"a socket with a listener", func(path string) func() {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = l.Close() }
		}, "another tideover server uses this socket"},
		{"one of ours", func(path string) func() {
			l, err := ListenUnix(path)
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = l.Close() }
		}, "another tideover server uses this socket"},
		{"a file", func(path string) func() {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			return func() {}
		}, "not a socket"},
		{"a link to elsewhere", func(path string) func() {
			if err := os.Symlink("/dev/null", path); err != nil {
				t.Fatal(err)
			}
			return func() {}
		}, "not a socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, "s")
			defer os.Remove(path)
			defer c.there(path)()
			l, err := ListenUnix(path)
			if err == nil {
				defer l.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("ListenUnix: %v, want %q", err, c.want)
			}
		})
	}
	if _, err := ListenUnix(filepath.Join(dir, strings.Repeat("x", 110))); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestOfServersThatStartAtOnceOneGetsTheSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testfile.ShortDir(t), "s")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var got []net.Listener
	for range 20 {
		wg.Go(func() {
			if l, err := ListenUnix(path); err == nil {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, l)
			}
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Errorf("%d listeners, want 1", len(got))
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for _, l := range got {
		_ = l.Close()
	}
}
