package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

// lockName is the file in the data folder that a server or a gateway locks. A gateway alone has no
// engine, whose log would be locked.
const lockName = "server.lock"

// lockData makes this process the only server of the folder; processes with another address or
// socket are excluded, too. The operating system releases the lock when the process ends. The file
// stays: if it were removed, a third process could lock a new file while a second one has the old
// file open.
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
	// Only error messages use the contents.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return func() {
		_ = f.Truncate(0)
		_ = f.Close()
	}, nil
}

// lockHolder describes the process that has the lock.
func lockHolder(f *os.File) string {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return "another tideover" // it is starting or stopping
	}
	return fmt.Sprintf("another tideover (pid %d)", pid)
}
