//go:build linux || darwin || freebsd

package natstest

import (
	"errors"
	"os"
	"syscall"
)

// lock waits until no other process has locked the file. The lock ends when the file is
// closed.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
