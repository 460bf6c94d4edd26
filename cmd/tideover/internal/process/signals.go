//go:build unix

package process

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
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

	tree   *processTree            // gets the signals
	cancel context.CancelCauseFunc // called with an ending signal
}

func watchSignals(tree *processTree, cancel context.CancelCauseFunc) *signals {
	g := &signals{
		sent:      make(chan os.Signal, 64),
		children:  make(chan os.Signal, 1),
		continued: make(chan os.Signal, 1),
		pipes:     make(chan os.Signal, 1),
		idle:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
		tree:      tree,
		cancel:    cancel,
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
	go g.run()
	return g
}

func (g *signals) run() {
	defer close(g.done)
	for {
		select {
		case <-g.quit:
			return
		case <-g.children:
			g.tree.reap()
		case sig := <-g.sent:
			g.handle(sig.(syscall.Signal))
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

func (g *signals) handle(sig syscall.Signal) {
	switch {
	case sig == syscall.SIGTSTP:
		if !g.tree.forwardStop() {
			g.stopSelf(syscall.Getpid(), sig)
		}
	case isEnding(sig):
		g.cancel(&SignalError{sig})
		if !g.tree.signalGroup(sig) {
			select {
			case g.idle <- struct{}{}:
			default:
			}
		}
	default:
		g.tree.signalGroup(sig)
	}
}

func isEnding(sig syscall.Signal) bool { return slices.Contains(endings, os.Signal(sig)) }

// drain removes the element of a channel, if there is one.
func drain[T any](c <-chan T) {
	select {
	case <-c:
	default:
	}
}

// stopWait is how long to wait for a stop to take effect: of the command after TSTP, and of
// ourselves after a kill.
const stopWait = 100 * time.Millisecond

// stopSelf stops the process pid, or if pid is 0 our whole group, and returns when it has been
// continued. The system ignores the stop if our group is orphaned, because no shell could continue
// it; then stopSelf returns after stopWait.
func (g *signals) stopSelf(pid int, sig syscall.Signal) {
	drain(g.continued)
	g.withDefault(sig, func() {
		stop(pid, sig)
		select {
		case <-g.continued:
		case <-time.After(stopWait):
		}
	})
}
