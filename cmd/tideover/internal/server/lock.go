package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

// lockName is the file in the data folder that whoever serves from it holds: serve
// and a gateway alone, which has no engine that would lock anything.
const lockName = "server.lock"

// lockData makes this process the only one that serves from the folder, whatever
// its address and its socket are. The system gives the lock up with the process,
// however that ends. The file stays: removing it would let a third process lock a
// new one while a second has the old one open.
func lockData(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|lockfile.NoFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("server.data: %w", err)
	}
	held, err := lockfile.Try(f)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("server.data: lock %s: %w", path, err)
	}
	if held {
		holder := lockHolder(f)
		_ = f.Close()
		return nil, fmt.Errorf("server.data: the folder %s is in use by %s: stop that one, or name another folder with --data or server.data", dir, holder)
	}
	// What it says is only for people.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return func() {
		_ = f.Truncate(0)
		_ = f.Close()
	}, nil
}

// lockHolder names who has the lock.
func lockHolder(f *os.File) string {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return "another tideover" // which has only just begun, or is about to end
	}
	return fmt.Sprintf("another tideover (pid %d)", pid)
}
