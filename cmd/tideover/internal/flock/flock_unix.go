//go:build unix

package flock

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// NoFollow as a flag of [os.OpenFile] refuses a link in place of the file.
const NoFollow = unix.O_NOFOLLOW

// patience is how long a lock is tried. A process that was just forked has what
// its parent held until it becomes another program, also if the parent is gone.
const patience = 200 * time.Millisecond

// Try takes the lock, or reports that somebody else holds it.
func Try(f *os.File) (held bool, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(patience / 20) {
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

// Release gives the lock up at once. To close the file is not enough while a process that was just forked has it, too.
func Release(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
