//go:build unix && !linux

package session

import "golang.org/x/sys/unix"

// flushInput forgets what was typed on the terminal and not read yet.
func flushInput(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, unix.TCIFLUSH) }
