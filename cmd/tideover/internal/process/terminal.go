//go:build unix

package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of the process. A nil terminal means that there is none; close
// does nothing then, is returns false, and holder returns a negative number.
type terminal struct {
	file  *os.File // /dev/tty; nil if standard input is the terminal
	input *os.File // standard input, if that is the terminal
	fd    int
	own   int           // our process group
	modes *unix.Termios // original modes; nil if they are unknown
}

// openTerminal returns the controlling terminal; nil if there is none.
func openTerminal(stdin *os.File) *terminal {
	t := &terminal{input: stdin, fd: fdOf(stdin), own: unix.Getpgrp()}
	if !IsTerminal(stdin) || t.holder() < 0 {
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

// holder returns the group in the foreground; negative if it is unknown.
func (t *terminal) holder() int {
	if t == nil {
		return -1
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// give puts the group in the foreground.
func (t *terminal) give(group int) (err error) {
	withoutTTOU(func() { err = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) })
	return err
}

// lend gives the terminal's foreground to the attempt, if we have it.
//
// The command has already run for some microseconds by then. If it has used the terminal in that time,
// the system has stopped it, and [Supervisor.handleStop] continues it. To set the foreground in the
// child between fork and exec, TTOU would have to be ignored there, and the command would inherit that.
func (t *terminal) lend(a *attempt) {
	if t.holder() == t.own && t.give(a.pid) == nil {
		a.lent, a.terminal = true, true
	}
}

// reclaim takes the foreground back from the attempt. cutShort means that the command was ended by us
// or by a signal; then reclaim also restores the terminal's modes. A command that ended normally may
// have changed them on purpose.
func (t *terminal) reclaim(a *attempt, cutShort bool) {
	if !a.lent {
		return
	}
	a.lent = false
	if t.give(t.own) != nil && t.holder() < 0 {
		a.hungUp = true // the terminal worked before, or the attempt would not have got it
	}
	if cutShort && t.modes != nil && t.holder() == t.own {
		_ = unix.IoctlSetTermios(t.fd, setTermios, t.modes)
	}
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
