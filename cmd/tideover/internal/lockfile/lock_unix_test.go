//go:build unix

package lockfile_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|lockfile.NoFollow, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestALockIsForOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lock")
		first, second := open(t, path), open(t, path)
		if held, err := lockfile.Try(first); held || err != nil {
			t.Fatalf("Try = %v, %v", held, err)
		}
		if held, err := lockfile.Try(second); !held || err != nil {
			t.Errorf("Try of a lock that is held = %v, %v", held, err)
		}
		// Release the lock after a moment, as a forked child does when it executes another
		// program.
		time.AfterFunc(20*time.Millisecond, func() { _ = first.Close() })
		if held, err := lockfile.Try(second); held || err != nil {
			t.Errorf("Try of a lock that is let go meanwhile = %v, %v", held, err)
		}
	})
}

func TestALinkIsNoLock(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "lock")
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(link, os.O_RDWR|os.O_CREATE|lockfile.NoFollow, 0o600); err == nil {
		_ = f.Close()
		t.Error("a link was followed")
	}
}

func TestAReleasedLockIsFree(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if held, err := lockfile.Try(first); held || err != nil {
		t.Fatalf("Try = %v, %v", held, err)
	}
	lockfile.Release(first) // the file stays open
	if held, err := lockfile.Try(second); held || err != nil {
		t.Errorf("Try of a lock that was released = %v, %v", held, err)
	}
}
