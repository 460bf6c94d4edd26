//go:build unix

package process

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// endings are the signals that end the command and the supervisor; passing are only forwarded to
// the command.
var (
	endings = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}
	passing = []os.Signal{syscall.SIGWINCH, syscall.SIGUSR1, syscall.SIGUSR2}
)

// signals receives the signals of the process while a supervisor is open.
type signals struct {
	sent      chan os.Signal
	children  chan os.Signal
	continued chan os.Signal
	pipes     chan os.Signal // never read
	idle      chan struct{}  // has an element if an ending signal came between attempts
	quit      chan struct{}
	done      chan struct{}
}

func watchSignals(s *Supervisor) *signals {
	g := &signals{
		sent:      make(chan os.Signal, 64),
		children:  make(chan os.Signal, 1),
		continued: make(chan os.Signal, 1),
		pipes:     make(chan os.Signal, 1),
		idle:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
	}
	for _, sig := range slices.Concat([]os.Signal{syscall.SIGTSTP}, endings, passing) {
		// A signal that was ignored at our start stays ignored, for us and for the command: nohup
		// relies on it. This works only for HUP and INT; the Go runtime reports all others as not
		// ignored.
		if !signal.Ignored(sig) {
			signal.Notify(g.sent, sig)
		}
	}
	// SIGPIPE must not kill us before the command is ended; the failed write is enough. The
	// command does not inherit a handler, but it would inherit an ignored signal.
	signal.Notify(g.pipes, syscall.SIGPIPE)
	signal.Notify(g.children, syscall.SIGCHLD)
	signal.Notify(g.continued, syscall.SIGCONT)
	go g.run(s)
	return g
}

func (g *signals) run(s *Supervisor) {
	defer close(g.done)
	for {
		select {
		case <-g.quit:
			return
		case <-g.children:
			s.reap()
		case sig := <-g.sent:
			g.handle(s, sig.(syscall.Signal))
		}
	}
}

func (g *signals) stop() {
	for _, c := range []chan os.Signal{g.sent, g.children, g.continued, g.pipes} {
		signal.Stop(c)
	}
	close(g.quit)
	<-g.done
}

func (g *signals) handle(s *Supervisor, sig syscall.Signal) {
	switch {
	case sig == syscall.SIGTSTP:
		if !s.forwardStop() {
			g.stopSelf(syscall.Getpid(), sig)
		}
	case isEnding(sig):
		s.cancel(&SignalError{sig})
		if !s.signalGroup(sig) {
			select {
			case g.idle <- struct{}{}:
			default:
			}
		}
	default:
		s.signalGroup(sig)
	}
}

func isEnding(sig syscall.Signal) bool { return slices.Contains(endings, os.Signal(sig)) }

// signalGroup sends the signal to the group of the current attempt, and returns false if there is
// none.
func (s *Supervisor) signalGroup(sig syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.current
	if a == nil {
		return false
	}
	err := syscall.Kill(-a.pid, sig)
	if sig == syscall.SIGCONT || isEnding(sig) {
		a.continues++
	}
	if a.running {
		// The command itself may have moved to another group.
		if group, e := syscall.Getpgid(a.pid); e == nil && group != a.pid {
			err = errors.Join(ignoreGone(err), syscall.Kill(a.pid, sig))
		}
	}
	if ignoreGone(err) != nil && !s.refused {
		s.refused = true
		s.notice("the command (process %d) may not be signalled: %v; waiting for it to end", a.pid, err)
	}
	if isEnding(sig) {
		// A stopped process handles only KILL until it is continued.
		_ = syscall.Kill(-a.pid, syscall.SIGCONT)
	}
	return true
}

func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
