//go:build unix

package process

import (
	"cmp"
	"context"
	"errors"
	"syscall"
	"time"
)

// attempt is one run of the command.
type attempt struct {
	pid           int // of the command and of its process group; not reused while a member lives
	states        chan change
	stops         chan struct{} // we got SIGTSTP
	running       bool          // the command itself has not been reaped
	continues     int           // number of CONT signals sent to the group
	termSent      time.Time     // when TERM was sent; zero if it was not
	termSentTo    map[int]bool  // processes that got TERM then
	hasForeground bool          // the group has the terminal's foreground instead of us
	terminal      bool          // the group has, or had, the foreground
	hungUp        bool          // the terminal was closed while the group had it
	timedOut      bool
}

// Run runs the command once, with extra environment variables ("key=value"). It returns when the
// command has ended and, unless it succeeded, all its processes have ended. The end of ctx ends the
// command. An error means that the command was not run: a [*StartError], or the cause of ctx or of
// [Supervisor.Context]. An [*OutputError] is returned together with a result.
func (s *Supervisor) Run(ctx context.Context, extra ...string) (Result, error) {
	if err := errors.Join(context.Cause(s.ctx), context.Cause(ctx)); err != nil {
		return Result{}, err
	}
	began := time.Now()
	a, err := s.start(extra)
	if err != nil {
		return Result{}, err
	}
	status := s.waitForEnd(ctx, a)
	s.takeForeground(a, a.timedOut || status.Signaled())

	r := Result{TimedOut: a.timedOut, Terminal: a.terminal, HungUp: a.hungUp}
	r.Code, r.Signal = status.ExitStatus(), 0
	if status.Signaled() {
		r.Signal = status.Signal()
		r.Code = CodeSignal + int(r.Signal)
	}
	failed := r.Code != 0 || r.TimedOut || s.ctx.Err() != nil
	if failed {
		s.sweep(a)
	}
	s.stdin.finish()
	err = s.finish(ctx, &r)
	if !failed && (err != nil || s.cfg.MatchStdout != nil && !r.MatchedStdout) {
		s.sweep(a)
	}
	s.clearCurrent()
	r.Duration = time.Since(began)
	return r, err
}

// finish waits until the outputs are written. A stuck reader uses the attempt's time, as it would
// for a command that writes to that reader directly.
func (s *Supervisor) finish(ctx context.Context, r *Result) error {
	var errs [2]error
	r.MatchedStdout, errs[0] = s.stdout.finish(ctx, s)
	r.MatchedStderr, errs[1] = s.stderr.finish(ctx, s)
	if errs[0] == errStalled || errs[1] == errStalled { //nolint:errorlint // never wrapped
		r.TimedOut = s.ctx.Err() == nil
		return nil
	}
	return cmp.Or(errs[0], errs[1])
}

// start opens the streams and starts the command with them.
func (s *Supervisor) start(extra []string) (*attempt, error) {
	a := &attempt{running: true, states: make(chan change, 1), stops: make(chan struct{}, 1)}
	files, err := s.open()
	if err == nil {
		err = s.launch(a, extra, files)
	}
	s.stdin.started()
	s.stdout.started()
	s.stderr.started()
	if err != nil {
		s.stdin.finish()
		_ = s.finish(context.Background(), &Result{})
		return nil, err
	}
	if s.terminal.is(s.cfg.Stdin) {
		s.giveForeground(a)
	}
	go s.watch(a)
	return a, nil
}

// launch starts the command, unless a signal has ended the supervisor. The lock ensures that a
// signal is either seen here or finds the attempt to forward it to.
func (s *Supervisor) launch(a *attempt, extra []string, files [3]uintptr) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := context.Cause(s.ctx); err != nil {
		return err
	}
	if a.pid, err = s.spawn(extra, files); err == nil {
		s.current = a
	}
	return err
}

// open returns the descriptors of the three streams.
func (s *Supervisor) open() (files [3]uintptr, err error) {
	for i, open := range []func() (uintptr, error){s.stdin.open, s.stdout.open, s.stderr.open} {
		if files[i], err = open(); err != nil {
			return files, &StartError{CodeInternal, s.cfg.Args[0], err}
		}
	}
	return files, nil
}

// clearCurrent removes the current attempt, so that signals are no longer forwarded.
func (s *Supervisor) clearCurrent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

// change is a change of the command's state.
type change struct {
	syscall.WaitStatus
	continued int // number of CONT signals sent before it
}

// watch reports each change of the command's state; the last one is its end. No other function
// waits for the command.
func (s *Supervisor) watch(a *attempt) {
	for {
		c, err := s.await(a)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		a.states <- c
		if err != nil || !c.Stopped() {
			return
		}
	}
}

// waitForEnd handles stops, timeouts and signals until the command has ended.
func (s *Supervisor) waitForEnd(ctx context.Context, a *attempt) syscall.WaitStatus {
	timeout, stopped := ctx.Done(), s.ctx.Done()
	var grace <-chan time.Time
	for {
		select {
		case c := <-a.states:
			if !c.Stopped() {
				return c.WaitStatus
			}
			if s.stale(a, c) {
				continue // it was continued meanwhile
			}
			s.handleStop(a, c.StopSignal())
		case <-a.stops:
			s.suspendWith(a)
		case <-stopped: // the signal has been forwarded already
			stopped, timeout = nil, nil
			if stop := s.Stopped(); stop != nil && stop.Signal == syscall.SIGTERM {
				s.sendTerm(a, false)
			}
			grace = time.After(s.cfg.Grace)
		case <-timeout:
			timeout = nil
			if s.ctx.Err() != nil {
				continue // a signal ends us, which the case above handles
			}
			a.timedOut = true
			s.sendTerm(a, true)
			grace = time.After(s.cfg.Grace)
		case <-grace:
			s.signalGroup(syscall.SIGKILL)
		}
	}
}
