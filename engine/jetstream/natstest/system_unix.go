//go:build linux || darwin || freebsd

package natstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

func (n *node) thaw() error { return n.signal(syscall.SIGCONT) }

func (n *node) reload() error { return n.signal(syscall.SIGHUP) }

// freeze stops the process and, on systems with /proc, waits until it has
// stopped.
func (n *node) freeze(ctx context.Context) error {
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/%d/stat", n.running().cmd.Process.Pid)
	return polls.Do(ctx, func(context.Context) error {
		stat, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // this system has no /proc
		}
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return errors.New("node " + n.name + " has not stopped yet")
		}
		return nil
	})
}

func (n *node) signal(s os.Signal) error {
	p := n.running()
	if p == nil {
		return errors.New("node " + n.name + " does not run")
	}
	return p.cmd.Process.Signal(s)
}

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
