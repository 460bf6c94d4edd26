package session

import "golang.org/x/sys/unix"

// flushInput forgets what was typed on the terminal and not read yet.
func flushInput(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
