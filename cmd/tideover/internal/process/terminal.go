//go:build unix

package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of the process. Its methods do nothing on nil, which means
// that there is none.
type terminal struct {
	file  *os.File
	input *os.File // standard input, if that is the terminal
	fd    int
	own   int // our process group
	modes *unix.Termios
}

// openTerminal returns the controlling terminal; nil if there is none.
func openTerminal(stdin *os.File) *terminal {
	t := &terminal{input: stdin, fd: fdOf(stdin), own: unix.Getpgrp()}
	if !IsTerminal(stdin) || t.foregroundGroup() < 0 {
		f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			return nil
		}
		t.file, t.input, t.fd = f, nil, fdOf(f)
	}
	t.modes, _ = unix.IoctlGetTermios(t.fd, getTermios)
	return t
}

func (t *terminal) close() {
	if t != nil && t.file != nil {
		_ = t.file.Close()
	}
}

// is reports whether f is the terminal.
func (t *terminal) is(f *os.File) bool { return t != nil && t.input == f }

// foregroundGroup returns the group in the foreground; negative if it is unknown.
func (t *terminal) foregroundGroup() int {
	if t == nil {
		return -1
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// setForeground puts the group in the foreground.
func (t *terminal) setForeground(group int) (err error) {
	withoutTTOU(func() { err = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) })
	return err
}

// restore restores the modes of our start.
func (t *terminal) restore() {
	if t == nil || t.modes == nil || t.foregroundGroup() != t.own {
		return
	}
	_ = unix.IoctlSetTermios(t.fd, setTermios, t.modes)
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(fdOf(f), getTermios)
	return err == nil
}

// Foreground reports whether f is a terminal and we are in its foreground, so that drawing on it
// does not disturb another job.
func Foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(fdOf(f), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
