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
	pid      int // the command, and its group; the number is not reused while any member lives
	states   chan change
	stops    chan struct{} // we were told to stop, in the sense of Ctrl-Z
	running  bool          // the command itself has not been reaped
	goOns    int           // how often the group was sent CONT
	told     time.Time     // when the group was sent TERM
	toldToo  map[int]bool  // who else was at that time
	lent     bool          // the group is in the foreground, in our place
	terminal bool          // it is, or was
	hungUp   bool          // the terminal went away while it was lent
	timedOut bool
}

// Run runs the command once, with extra environment variables ("key=value"),
// and returns when it has ended and, unless it succeeded, nothing of it is left.
// When ctx is done the command is ended. The error says why the command was
// not run at all: a [*StartError], or the cause of ctx or of [Supervisor.Context];
// or it is an [*OutputError], beside the result.
func (s *Supervisor) Run(ctx context.Context, extra ...string) (Result, error) {
	if err := errors.Join(context.Cause(s.ctx), context.Cause(ctx)); err != nil {
		return Result{}, err
	}
	began := time.Now()
	a, err := s.start(extra)
	if err != nil {
		return Result{}, err
	}
	status := s.follow(ctx, a)
	s.reclaim(a, a.timedOut || status.Signaled())

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
	s.end()
	r.Duration = time.Since(began)
	return r, err
}

// finish waits for the outputs. One whose reader is stuck takes as much of the
// attempt's time as a command that writes to that reader itself.
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
		s.lend(a)
	}
	go s.watch(a)
	return a, nil
}

// launch starts the command, unless a signal has told us to end. A signal is
// either seen here or finds the attempt to be passed to, never neither.
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

// end forgets the current attempt; signals have nobody to go to from now on.
func (s *Supervisor) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

// change is a change of the command's state.
type change struct {
	syscall.WaitStatus
	continued int // how often the command had been continued by then
}

// watch reports each change of the command's state, the last one being its end.
// It is the one place that waits for the command.
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

// follow sees the command through to its end.
func (s *Supervisor) follow(ctx context.Context, a *attempt) syscall.WaitStatus {
	timeout, stopped := ctx.Done(), s.ctx.Done()
	var grace <-chan time.Time
	for {
		select {
		case c := <-a.states:
			if !c.Stopped() {
				return c.WaitStatus
			}
			if s.stale(a, c) {
				continue // it goes on already
			}
			s.stopped(a, c.StopSignal())
		case <-a.stops:
			s.suspendWith(a)
		case <-stopped: // the signal has been passed on already
			stopped, timeout = nil, nil
			if stop := s.Stopped(); stop != nil && stop.Signal == syscall.SIGTERM {
				s.tell(a, false)
			}
			grace = time.After(s.cfg.Grace)
		case <-timeout:
			timeout = nil
			if s.ctx.Err() != nil {
				continue // our own end is the cause, and has a case of its own
			}
			a.timedOut = true
			s.tell(a, true)
			grace = time.After(s.cfg.Grace)
		case <-grace:
			s.signalGroup(syscall.SIGKILL)
		}
	}
}
