//go:build unix

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supervisor runs the attempts of one command, one at a time. Open it with [New] and end it with
// [Supervisor.Close].
type Supervisor struct {
	cfg      Config
	stdin    *input
	stdout   *output
	stderr   *output
	hold     *hold
	terminal *terminal // the controlling terminal; nil without one
	tree     *processTree
	signals  *signals

	ctx    context.Context // ends with the first of the signals endings
	cancel context.CancelCauseFunc
}

// New prepares to run the command: it handles the signals of this process and, on Linux, makes it
// the subreaper of its descendants.
func New(cfg Config) (*Supervisor, error) {
	if len(cfg.Args) == 0 || cfg.Args[0] == "" {
		return nil, errors.New("no command given")
	}
	cfg.Stdin = cmp.Or(cfg.Stdin, os.Stdin)
	cfg.Stdout = cmp.Or(cfg.Stdout, os.Stdout)
	cfg.Stderr = cmp.Or(cfg.Stderr, os.Stderr)
	if cfg.Notice == nil {
		cfg.Notice = func(string) {}
	}
	in, err := newInput(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing standard input: %w", err)
	}
	s := &Supervisor{
		cfg:      cfg,
		stdin:    in,
		stdout:   &output{dst: cfg.Stdout, match: cfg.MatchStdout, buffer: cfg.Buffer},
		stderr:   &output{dst: cfg.Stderr, match: cfg.MatchStderr},
		hold:     &hold{dsts: [2]*os.File{cfg.Stdout, cfg.Stderr}},
		terminal: openTerminal(cfg.Stdin),
		tree:     &processTree{family: newFamily(), grace: cfg.Grace, notice: cfg.Notice},
	}
	if cfg.Hold {
		s.stdout.held, s.stderr.held = &heldStream{s.hold, 0}, &heldStream{s.hold, 1}
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.signals = watchSignals(s.tree, s.cancel)
	return s, nil
}

// Context returns a context that ends when this process gets TERM, INT, HUP or QUIT; its cause is a
// [*SignalError]. Waits between attempts should end with it.
func (s *Supervisor) Context() context.Context { return s.ctx }

// Stopped returns the signal that ended the supervisor; nil if there was none.
func (s *Supervisor) Stopped() *SignalError {
	e, _ := errors.AsType[*SignalError](context.Cause(s.ctx))
	return e
}

// Replayable returns nil if another attempt would get all of standard input, else why it would not.
func (s *Supervisor) Replayable() error { return s.stdin.lost() }

// ReaderGone reports whether our standard output is a pipe without a reader, so that no attempt can
// write to it.
func (s *Supervisor) ReaderGone() bool {
	fds := []unix.PollFd{{Fd: int32(fdOf(s.cfg.Stdout))}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}

// Interrupted must be called if the terminal has sent the signal only to the command, because that
// had the foreground. It sends the signal to our own group, as the terminal would have done, so
// that a script, a loop or make around us ends. The signal counts as sent to us.
func (s *Supervisor) Interrupted(sig syscall.Signal) {
	drain(s.signals.idle)
	_ = syscall.Kill(0, sig)
	select {
	case <-s.signals.idle: // our own signal has arrived
	case <-time.After(stopWait):
	}
	s.cancel(&SignalError{sig})
}

// PassOn writes the buffered output of the last attempt, see Config.Buffer, or the stored output of all
// attempts, see Config.Hold. A signal ends it, because the reader may be stuck.
func (s *Supervisor) PassOn() error {
	drain(s.signals.idle) // an earlier signal does not count
	done := make(chan error, 1)
	go func() { done <- errors.Join(s.stdout.passOn(), s.hold.passOn()) }()
	select {
	case err := <-done:
		return err
	case <-s.signals.idle:
		return context.Cause(s.ctx)
	}
}

// Close releases the signals and the terminal.
func (s *Supervisor) Close() error {
	s.signals.stop()
	s.terminal.close()
	s.cancel(nil)
	return errors.Join(s.stdin.close(), s.stdout.close(), s.hold.close())
}
