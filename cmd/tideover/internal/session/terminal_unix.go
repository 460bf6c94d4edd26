//go:build unix

package session

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal returns a [Runner.Open] for a process on a terminal. The command gets a terminal of its
// own, with the same size and settings, and we relay input and output. So the command works as usual,
// and we see its output.
func Terminal(in, out, errs *os.File) func(*Spec) (Streams, error) {
	return func(*Spec) (Streams, error) {
		ours, theirs, err := pty.Open()
		if err != nil {
			return Streams{}, err
		}
		p := &terminalRelay{tty: in, out: out, pty: ours, done: make(chan struct{})}
		if err := p.start(theirs); err != nil {
			return Streams{}, errors.Join(err, ours.Close(), theirs.Close())
		}
		st := Streams{
			Stdin: theirs, Stdout: theirs, Stderr: theirs, Terminal: true, Watch: p.watch, Control: p,
			Close: func() error { return errors.Join(theirs.Close(), p.close()) },
		}
		if !term.IsTerminal(int(errs.Fd())) {
			st.Stderr = errs // standard error is redirected
		}
		return st, nil
	}
}

// terminalRelay relays input and output between our terminal and the command's. It is the
// [TerminalControl] of the command.
type terminalRelay struct {
	tty, out *os.File // our terminal
	pty      *os.File // our side of the command's terminal
	signals  chan os.Signal
	stop     *os.File // closing this end of a pipe ends keyboard
	stopped  *os.File // the other end of the pipe
	done     chan struct{}
	parts    sync.WaitGroup

	mu   sync.Mutex // held while output is relayed
	over bool       // no more output is relayed

	modes sync.Mutex  // held while the modes of our terminal change
	was   *term.State // original modes
	raw   bool        // the terminal is in raw mode
	ended bool        // the terminal must stay in its original modes

	keys keyLog
}

// backgroundCheck is how often we check whether we are in the foreground again.
const backgroundCheck = 100 * time.Millisecond

// start puts our terminal into raw mode, so that control keys reach the command.
func (p *terminalRelay) start(theirs *os.File) (err error) {
	_ = pty.InheritSize(p.tty, p.pty) // on an error, it keeps the default size
	if was, err := term.GetState(int(p.tty.Fd())); err == nil {
		p.was = was
		_ = term.Restore(int(theirs.Fd()), was) // on an error, it keeps the default modes
	}
	if err := p.makeRaw(); err != nil {
		return err
	}
	if p.stopped, p.stop, err = os.Pipe(); err != nil {
		return errors.Join(err, p.restore(true))
	}
	p.signals = make(chan os.Signal, 2)
	signal.Notify(p.signals, syscall.SIGWINCH, syscall.SIGCONT)
	p.parts.Go(func() {
		for sig := range p.signals {
			if sig == syscall.SIGCONT {
				p.keys.touch() // the user is present
				_ = p.makeRaw()
			}
			_ = pty.InheritSize(p.tty, p.pty)
		}
	})
	return nil
}

// makeRaw puts our terminal into raw mode. In the background it does nothing, because the system
// would stop us.
func (p *terminalRelay) makeRaw() error {
	p.modes.Lock()
	defer p.modes.Unlock()
	if p.ended || p.inBackground() {
		return nil
	}
	was, err := term.MakeRaw(int(p.tty.Fd()))
	if err != nil {
		return err
	}
	if p.was == nil {
		p.was = was
	}
	p.raw = true
	return nil
}

// restore restores the original modes of our terminal. After a call with last, makeRaw has no
// effect.
func (p *terminalRelay) restore(last bool) error {
	p.modes.Lock()
	defer p.modes.Unlock()
	p.ended = p.ended || last
	if !p.raw || p.inBackground() {
		return nil
	}
	p.raw = false
	return term.Restore(int(p.tty.Fd()), p.was)
}

// inBackground reports whether another job has our terminal.
func (p *terminalRelay) inBackground() bool {
	group, err := unix.IoctlGetInt(int(p.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// Size returns the size of the command's terminal.
func (p *terminalRelay) Size() (cols, rows int) {
	size, err := unix.IoctlGetWinsize(int(p.pty.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// DiscardInput discards input that was not read yet.
func (p *terminalRelay) DiscardInput() {
	if !p.inBackground() {
		_ = flushInput(int(p.tty.Fd()))
	}
}

// Type types text into the command.
func (p *terminalRelay) Type(text string) error {
	_, err := p.pty.WriteString(text)
	return err
}

// Typed returns when the user typed last. draft means that this input did not end with Enter.
func (p *terminalRelay) Typed() (t time.Time, draft bool) { return p.keys.last() }

// keyboard relays input until stop is closed. It polls, because a plain read could not be
// interrupted and would swallow input that is meant for the next program.
func (p *terminalRelay) keyboard() {
	tty := int(p.tty.Fd())
	fds := []unix.PollFd{{Fd: int32(p.stopped.Fd()), Events: unix.POLLIN}, {Fd: int32(tty), Events: unix.POLLIN}}
	buf := make([]byte, 4096)
	for {
		watched, timeout := fds, -1
		background := p.inBackground()
		if background { // reading would stop us
			watched, timeout = fds[:1], int(backgroundCheck/time.Millisecond)
		}
		fds[1].Revents = 0
		_, err := unix.Poll(watched, timeout)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR) || fds[0].Revents != 0:
			return
		case background && !p.inBackground():
			_ = p.makeRaw()
			_ = pty.InheritSize(p.tty, p.pty)
			continue
		case fds[1].Revents == 0 || p.inBackground():
			continue
		}
		n, err := unix.Read(tty, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return
		}
		p.keys.typed(buf[:n], time.Now())
		if _, err := p.pty.Write(buf[:n]); err != nil {
			return
		}
	}
}

// watch starts to relay input, and output to our terminal and to watcher.
func (p *terminalRelay) watch(watcher io.Writer) {
	p.parts.Go(p.keyboard)
	// close waits for this goroutine for a second only: it can't end while a process that the command
	// has left running keeps the terminal open.
	go func() {
		defer close(p.done)
		fds := []unix.PollFd{{Fd: int32(p.pty.Fd()), Events: unix.POLLIN}}
		buf := make([]byte, 32<<10)
		for {
			if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if fds[0].Revents != 0 && !p.show(watcher, buf) {
				return
			}
			fds[0].Revents = 0
		}
	}()
}

// show relays the available output; false if the relay has ended. It reads while holding the lock, so
// that drain, which also takes the lock, never misses output that was read and not yet relayed.
func (p *terminalRelay) show(watcher io.Writer, buf []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	n, err := p.pty.Read(buf)
	_, _ = watcher.Write(buf[:n])
	_, _ = p.out.Write(buf[:n])
	return err == nil // EIO when the other end is closed
}

// drain waits until all output of the command is relayed.
func (p *terminalRelay) drain() {
	fds := []unix.PollFd{{Fd: int32(p.pty.Fd()), Events: unix.POLLIN}}
	for quiet, n := 0, 0; quiet < 3 && n < 100; n++ {
		p.mu.Lock()
		fds[0].Revents = 0
		_, err := unix.Poll(fds, 0)
		p.mu.Unlock()
		if quiet++; err != nil || fds[0].Revents&unix.POLLIN != 0 {
			quiet = 0
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stopWait is how long we wait for the system to stop our job.
const stopWait = 100 * time.Millisecond

// Suspend restores our terminal and stops our job, as the terminal does for Ctrl-Z, because the
// command has stopped. It returns when the job is continued, or if there is no shell to continue
// it.
func (p *terminalRelay) Suspend() {
	p.drain()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = p.restore(false)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(stopWait):
	}
	_ = p.makeRaw()
	_ = pty.InheritSize(p.tty, p.pty)
}

// close ends the relay and restores our terminal.
func (p *terminalRelay) close() error {
	select {
	case <-p.done:
	case <-time.After(time.Second): // a process that the command has left running keeps the terminal open
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	signal.Stop(p.signals)
	close(p.signals)
	err := errors.Join(p.stop.Close(), p.restore(true))
	p.parts.Wait()
	return errors.Join(err, p.stopped.Close(), p.pty.Close())
}
