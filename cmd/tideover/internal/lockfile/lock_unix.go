//go:build unix

package lockfile

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// NoFollow is a flag for [os.OpenFile], which then refuses to open a symbolic link.
const NoFollow = unix.O_NOFOLLOW

// tryFor is how long [Try] tries. One attempt is not enough: a forked child holds the
// locks of its parent until it executes another program, even if the parent has ended.
const tryFor = 200 * time.Millisecond

// Try takes an exclusive lock on the file. held is true if another process holds the lock.
func Try(f *os.File) (held bool, err error) {
	for end := time.Now().Add(tryFor); ; time.Sleep(tryFor / 20) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EINTR) && (!errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end)) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Release releases the lock at once. Closing the file is not enough while a forked child
// has it open, too.
func Release(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
