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
	pid        int // of the command and of its process group; the system does not reuse it while the group has a member
	states     chan change
	stops      chan struct{} // we got SIGTSTP
	running    bool          // the command itself has not been reaped
	continues  int           // number of CONT signals sent to the group
	termSent   time.Time     // when TERM was sent; zero if it was not
	termSentTo map[int]bool  // processes that got TERM then
	lent       bool          // the group has the terminal's foreground instead of us
	terminal   bool          // the group has or had the terminal's foreground
	hungUp     bool          // the terminal was closed while the group had it
	timedOut   bool
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
	s.terminal.reclaim(a, a.timedOut || status.Signaled())

	r := Result{TimedOut: a.timedOut, Terminal: a.terminal, HungUp: a.hungUp}
	r.Code, r.Signal = status.ExitStatus(), 0
	if status.Signaled() {
		r.Signal = status.Signal()
		r.Code = CodeSignal + int(r.Signal)
	}
	failed := r.Code != 0 || r.TimedOut || s.ctx.Err() != nil
	if failed {
		s.tree.sweep(a)
	}
	s.stdin.finish()
	err = s.finish(ctx, &r)
	if !failed && (err != nil || s.cfg.MatchStdout != nil && !r.MatchedStdout) {
		s.tree.sweep(a)
	}
	s.tree.clear()
	r.Duration = time.Since(began)
	return r, err
}

// finish waits until the outputs are written. If their reader is stuck until the attempt's time is
// over, the attempt counts as timed out, as if the command itself had written to that reader.
func (s *Supervisor) finish(ctx context.Context, r *Result) error {
	var errs [2]error
	r.MatchedStdout, errs[0] = s.stdout.finish(ctx, s)
	r.MatchedStderr, errs[1] = s.stderr.finish(ctx, s)
	r.LastStderr = s.stderr.line
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
		err = s.tree.add(a, func() (int, error) {
			if err := context.Cause(s.ctx); err != nil {
				return 0, err // a signal has ended the supervisor
			}
			return spawn(&s.cfg, append(s.tree.family.environment(), extra...), files)
		})
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
		s.terminal.lend(a)
	}
	go s.tree.watch(a)
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
			if s.tree.stale(a, c) {
				continue // it was continued meanwhile
			}
			s.handleStop(a, c.StopSignal())
		case <-a.stops:
			s.suspendWith(a)
		case <-stopped: // the signal has been forwarded already
			stopped, timeout = nil, nil
			if stop := s.Stopped(); stop != nil && stop.Signal == syscall.SIGTERM {
				s.tree.sendTerm(a, false)
			}
			grace = time.After(s.cfg.Grace)
		case <-timeout:
			timeout = nil
			if s.ctx.Err() != nil {
				continue // a signal ends us, which the case above handles
			}
			a.timedOut = true
			s.tree.sendTerm(a, true)
			grace = time.After(s.cfg.Grace)
		case <-grace:
			s.tree.signalGroup(syscall.SIGKILL)
		}
	}
}

// handleStop reacts to a stop of the command: it gives the command the terminal, or stops our own
// group, too.
func (s *Supervisor) handleStop(a *attempt, sig syscall.Signal) {
	holder := s.terminal.holder()
	usedTerminal := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case holder < 0 && s.terminal != nil && usedTerminal:
		// It was stopped for using a terminal that was closed since. No shell can continue it, and
		// SIGHUP does not reach a background process.
		a.terminal, a.hungUp = true, true
		s.tree.signalGroup(syscall.SIGHUP)
	case holder < 0 || s.ctx.Err() != nil:
		// Without job control, the process that stopped it must continue it.
	case usedTerminal && (holder == s.terminal.own || holder == a.pid):
		s.terminal.lend(a) // no effect if the command has the foreground already
		s.tree.signalGroup(syscall.SIGCONT)
	default:
		s.suspend(a, sig)
	}
}

// suspendWith stops the command, and then our own group, because we got TSTP.
func (s *Supervisor) suspendWith(a *attempt) {
	s.tree.signalGroup(syscall.SIGTSTP)
	select {
	case c := <-a.states:
		if !c.Stopped() {
			a.states <- c // the command has ended: put that back for waitForEnd
			return
		}
	case <-time.After(stopWait):
	}
	s.suspend(a, syscall.SIGTSTP)
}

// suspend stops our own group, as the terminal does with a group in the foreground. When we are
// continued, it continues the attempt. With Config.Suspend, that function decides when to continue.
func (s *Supervisor) suspend(a *attempt, sig syscall.Signal) {
	s.terminal.reclaim(a, false)
	if sig == syscall.SIGSTOP {
		// Unlike TSTP, STOP would stop us even if no shell could continue us.
		sig = syscall.SIGTSTP
	}
	if s.cfg.Suspend == nil || !s.cfg.Suspend() {
		s.signals.stopSelf(0, sig)
	}
	if a.terminal || s.terminal.is(s.cfg.Stdin) {
		s.terminal.lend(a)
	}
	s.tree.signalGroup(syscall.SIGCONT)
}
