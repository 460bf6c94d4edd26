//go:build unix

package process

import (
	"syscall"
	"time"
)

// stopWait is how long to wait for a stop to take effect: of the command after TSTP, and of
// ourselves after a kill.
const stopWait = 100 * time.Millisecond

// giveForeground gives the terminal's foreground to the attempt, if we have it.
//
// The command has been running for some microseconds by then. If it has used the terminal already,
// it was stopped for that, which [Supervisor.handleStop] handles. Setting the foreground in the child
// between fork and exec would require ignoring TTOU there, and the command would inherit that.
func (s *Supervisor) giveForeground(a *attempt) {
	if s.terminal.foregroundGroup() == s.terminal.own && s.terminal.setForeground(a.pid) == nil {
		a.hasForeground, a.terminal = true, true
	}
}

// takeForeground takes the foreground back from the attempt. If the command was ended by us or by a
// signal, it also restores the terminal's modes; a command that ended normally may have changed
// them on purpose.
func (s *Supervisor) takeForeground(a *attempt, cutShort bool) {
	if !a.hasForeground {
		return
	}
	a.hasForeground = false
	if s.terminal.setForeground(s.terminal.own) != nil && s.terminal.foregroundGroup() < 0 {
		a.hungUp = true // the terminal worked before, or the attempt would not have got it
	}
	if cutShort {
		s.terminal.restore()
	}
}

// forwardStop forwards a TSTP to the attempt, and returns false if there is none.
func (s *Supervisor) forwardStop() bool {
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

// handleStop reacts to a command that was stopped.
func (s *Supervisor) handleStop(a *attempt, sig syscall.Signal) {
	holder := s.terminal.foregroundGroup()
	switch {
	case holder < 0 && s.terminal != nil && (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU):
		// It was stopped for using a terminal that was closed since. No shell can continue it, and
		// SIGHUP does not reach a background process.
		a.terminal, a.hungUp = true, true
		s.signalGroup(syscall.SIGHUP)
	case holder < 0 || s.ctx.Err() != nil:
		// Without job control, the process that stopped it must continue it.
	case (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) && holder == s.terminal.own:
		s.giveForeground(a)
		s.signalGroup(syscall.SIGCONT)
	case (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) && holder == a.pid:
		s.signalGroup(syscall.SIGCONT)
	default:
		s.suspend(a, sig)
	}
}

// stale reports whether the stop happened before our latest CONT.
func (s *Supervisor) stale(a *attempt, c change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.continued < a.continues
}

// suspendWith stops the command, and then ourselves.
func (s *Supervisor) suspendWith(a *attempt) {
	s.signalGroup(syscall.SIGTSTP)
	select {
	case c := <-a.states:
		if !c.Stopped() {
			a.states <- c // its end: put it back for waitForEnd
			return
		}
	case <-time.After(stopWait):
	}
	s.suspend(a, syscall.SIGTSTP)
}

// suspend stops our own group, as the terminal does with a group in the foreground. When we are
// continued, it continues the attempt. With Config.Suspend, that function decides when to continue.
func (s *Supervisor) suspend(a *attempt, sig syscall.Signal) {
	s.takeForeground(a, false)
	if sig == syscall.SIGSTOP {
		// Unlike TSTP, STOP would stop us even if no shell could continue us.
		sig = syscall.SIGTSTP
	}
	if s.cfg.Suspend == nil || !s.cfg.Suspend() {
		s.signals.stopSelf(0, sig)
	}
	if a.terminal || s.terminal.is(s.cfg.Stdin) {
		s.giveForeground(a)
	}
	s.signalGroup(syscall.SIGCONT)
}

// stopSelf stops the process, or with 0 its whole group, and returns when it has been continued.
// The system ignores the stop if our group is orphaned, because no shell could continue it; then
// stopSelf returns, too.
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
