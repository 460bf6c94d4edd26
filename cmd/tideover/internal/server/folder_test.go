//go:build unix

package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestAFolderHasOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unlock, err := lockData(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, lockName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the lock is %v, %v", info, err)
	}
	_, err = lockData(dir)
	for _, want := range []string{"server.data: the folder " + dir, fmt.Sprintf("pid %d", os.Getpid()), "--data"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a second lock: %v, want %q", err, want)
		}
	}
	if other, err := lockData(t.TempDir()); err != nil {
		t.Errorf("another folder: %v", err)
	} else {
		other()
	}
	unlock()
	unlock, err = lockData(dir)
	if err != nil {
		t.Fatalf("after it was released: %v", err)
	}
	unlock()
}

func TestALockDoesNotFollowALink(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := lockData(dir); err == nil {
		t.Error("the lock followed a link")
	}
	if text, _ := os.ReadFile(other); string(text) != "precious" {
		t.Errorf("the other file is %q now", text)
	}
}

func TestOneOfManyConcurrentServersGetsTheLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	unlocks := make(chan func(), 20)
	for range cap(unlocks) {
		all.Go(func() {
			if unlock, err := lockData(dir); err == nil {
				unlocks <- unlock
			}
		})
	}
	all.Wait()
	close(unlocks)
	if n := len(unlocks); n != 1 {
		t.Errorf("%d processes have the lock", n)
	}
	for unlock := range unlocks {
		unlock()
	}
}
