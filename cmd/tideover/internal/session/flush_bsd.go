//go:build unix && !linux

package session

import "golang.org/x/sys/unix"

// flushInput discards input of the terminal that was not read yet.
func flushInput(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, unix.TCIFLUSH) }
