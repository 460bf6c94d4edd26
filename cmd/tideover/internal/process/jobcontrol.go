//go:build unix

package process

import (
	"syscall"
	"time"
)

// stopWait is how long a stop that we asked for may take to be seen: the
// command's after a TSTP, our own after a kill.
const stopWait = 100 * time.Millisecond

// lend puts the attempt in the foreground if we are there.
//
// The command has been running for some microseconds by then. If it was quick
// enough to touch the terminal it has been stopped for that, which
// [Supervisor.stopped] puts right. The other order, where the child does it
// between fork and exec, would need TTOU to be ignored there, and the command
// would inherit that.
func (s *Supervisor) lend(a *attempt) {
	if s.terminal.holder() == s.terminal.own && s.terminal.give(a.pid) == nil {
		a.lent, a.terminal = true, true
	}
}

// reclaim takes the foreground back from the attempt. If the command was cut
// short the terminal's modes are set back too; a command that ended by itself
// may have meant to change them.
func (s *Supervisor) reclaim(a *attempt, cutShort bool) {
	if !a.lent {
		return
	}
	a.lent = false
	if s.terminal.give(s.terminal.own) != nil && s.terminal.holder() < 0 {
		a.hungUp = true // it could be asked before, or it would not have been lent
	}
	if cutShort {
		s.terminal.restore()
	}
}

// toldToStop passes a TSTP that was sent to us on to the attempt, and reports
// whether there is one.
func (s *Supervisor) toldToStop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || !s.current.running {
		return false
	}
	select {
	case s.current.stops <- struct{}{}:
	default:
	}
	return true
}

// stopped answers a command that was stopped.
func (s *Supervisor) stopped(a *attempt, sig syscall.Signal) {
	holder := s.terminal.holder()
	switch {
	case holder < 0 && s.terminal != nil && (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU):
		// It was stopped for touching a terminal that has gone since: nobody can
		// continue it, and the hang-up did not reach it in the background.
		a.terminal, a.hungUp = true, true
		s.signalGroup(syscall.SIGHUP)
	case holder < 0 || s.ctx.Err() != nil:
		// Without job control whoever stopped it continues it.
	case (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) && holder == s.terminal.own:
		s.lend(a)
		s.signalGroup(syscall.SIGCONT)
	case (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) && holder == a.pid:
		s.signalGroup(syscall.SIGCONT)
	default:
		s.suspend(a, sig)
	}
}

// stale reports whether the stop dates from before the latest CONT that we sent.
func (s *Supervisor) stale(a *attempt, c change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.continued < a.goOns
}

// suspendWith stops the command, and us with it.
func (s *Supervisor) suspendWith(a *attempt) {
	s.signalGroup(syscall.SIGTSTP)
	select {
	case c := <-a.states:
		if !c.Stopped() {
			a.states <- c // its end, and the last: for follow to see
			return
		}
	case <-time.After(stopWait):
	}
	s.suspend(a, syscall.SIGTSTP)
}

// suspend stops our own group, as the terminal would have done had we been in
// the foreground, and once we are continued continues the attempt. With
// Config.Suspend, that decides when to go on.
func (s *Supervisor) suspend(a *attempt, sig syscall.Signal) {
	s.reclaim(a, false)
	if sig == syscall.SIGSTOP {
		// Unlike TSTP it would stop us even if there were nobody to continue us.
		sig = syscall.SIGTSTP
	}
	if s.cfg.Suspend == nil || !s.cfg.Suspend() {
		s.signals.stopSelf(0, sig)
	}
	if a.terminal || s.terminal.is(s.cfg.Stdin) {
		s.lend(a)
	}
	s.signalGroup(syscall.SIGCONT)
}

// stopSelf stops the process, or with 0 its whole group, and returns once it
// has been continued. The system discards the stop if our group is orphaned,
// so that nobody could continue it; then it returns too.
func (g *signals) stopSelf(pid int, sig syscall.Signal) {
	select {
	case <-g.continued:
	default:
	}
	g.withDefault(sig, func() {
		stop(pid, sig)
		select {
		case <-g.continued:
		case <-time.After(stopWait):
		}
	})
}
