package sqlitelog

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tideover/tideover/engine/journal"
)

// lockDir takes the lock of a folder. The system gives it up with the process,
// however that ends.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if held {
		holder := lockHolder(f)
		f.Close()
		return nil, fmt.Errorf("%w: %s holds %s; stop it, or use another folder (deleting the lock file does not help)",
			journal.ErrLocked, holder, path)
	}
	// Only for people, so an error is none of the lock.
	f.Truncate(0)                                        //nolint:errcheck // see above
	f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) //nolint:errcheck // see above
	return f, nil
}

func lockHolder(f *os.File) string {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	switch {
	case err != nil:
		return "another process"
	case pid == os.Getpid():
		return fmt.Sprintf("this process (pid %d)", pid)
	default:
		return fmt.Sprintf("the process with pid %d", pid)
	}
}

// unlockDir gives the lock up. The file stays: removing it would let a third
// process lock a new file while a second one waits with the old one open.
func unlockDir(f *os.File) error {
	f.Truncate(0) //nolint:errcheck // what it says is only for people
	return f.Close()
}
