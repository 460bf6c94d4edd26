//go:build unix

package process

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// attempt is one run of the command.
type attempt struct {
	pid      int // the command, and its group; the number is not reused while any member lives
	states   chan syscall.WaitStatus
	stops    chan struct{} // we were told to stop, in the sense of Ctrl-Z
	running  bool          // the command itself has not been reaped
	told     time.Time     // when the group was sent TERM
	lent     bool          // the group is in the foreground, in our place
	terminal bool          // it is, or was
	timedOut bool
}

// Run runs the command once, with extra environment variables ("key=value"),
// and returns when it has ended and, unless it succeeded, nothing of it is left.
// When ctx is done the command is ended. The error says why the command was
// not run at all: a [*StartError], or the cause of ctx or of [Supervisor.Context].
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

	r := Result{TimedOut: a.timedOut, Terminal: a.terminal}
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
	r.MatchedStdout = s.stdout.finish(s)
	r.MatchedStderr = s.stderr.finish(s)
	if !failed && s.cfg.MatchStdout != nil && !r.MatchedStdout {
		s.sweep(a)
	}
	s.end()
	r.Duration = time.Since(began)
	return r, nil
}

// start opens the streams and starts the command with them.
func (s *Supervisor) start(extra []string) (*attempt, error) {
	a := &attempt{running: true, states: make(chan syscall.WaitStatus, 1), stops: make(chan struct{}, 1)}
	files, err := s.open()
	if err == nil {
		s.mu.Lock()
		if a.pid, err = s.spawn(extra, files); err == nil {
			s.current = a
		}
		s.mu.Unlock()
	}
	s.stdin.started()
	s.stdout.started()
	s.stderr.started()
	if err != nil {
		s.stdin.finish()
		s.stdout.finish(s)
		s.stderr.finish(s)
		return nil, err
	}
	if s.terminal.is(s.cfg.Stdin) {
		s.lend(a)
	}
	go a.wait()
	return a, nil
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

// wait reports each change of the command's state, the last one being its end.
// It is the one place that waits for the command.
func (a *attempt) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(a.pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		a.states <- status
		if err != nil || !status.Stopped() {
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
		case status := <-a.states:
			if !status.Stopped() {
				s.mu.Lock()
				a.running = false
				s.mu.Unlock()
				return status
			}
			s.stopped(a, status.StopSignal())
		case <-a.stops:
			s.suspendWith(a)
		case <-stopped: // the signal has been passed on already
			stopped, timeout = nil, nil
			if stop := s.Stopped(); stop != nil && stop.Signal == syscall.SIGTERM {
				a.told = time.Now()
			}
			grace = time.After(s.cfg.Grace)
		case <-timeout:
			timeout = nil
			if s.ctx.Err() != nil {
				continue // our own end is the cause, and has a case of its own
			}
			a.timedOut = true
			a.told = time.Now()
			s.signalGroup(syscall.SIGTERM)
			grace = time.After(s.cfg.Grace)
		case <-grace:
			s.signalGroup(syscall.SIGKILL)
		}
	}
}
