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

// Terminal is [Runner.Open] for a process on a terminal: the command gets a
// terminal of its own, of the same size and with the same settings, and we pass on
// what is typed and shown. So it behaves as it does without us, and we see what it
// says.
func Terminal(in, out, errs *os.File) func(*Spec) (Streams, error) {
	return func(*Spec) (Streams, error) {
		ours, theirs, err := pty.Open()
		if err != nil {
			return Streams{}, err
		}
		p := &pass{tty: in, out: out, pty: ours, done: make(chan struct{})}
		if err := p.begin(theirs); err != nil {
			return Streams{}, errors.Join(err, ours.Close(), theirs.Close())
		}
		st := Streams{
			Stdin: theirs, Stdout: theirs, Stderr: theirs, Terminal: true, Watch: p.watch, Control: p,
			Close: func() error { return errors.Join(theirs.Close(), p.end()) },
		}
		if !term.IsTerminal(int(errs.Fd())) {
			st.Stderr = errs // it was sent elsewhere
		}
		return st, nil
	}
}

// pass is the passing on between two terminals. It is the [TerminalControl] of the
// command's.
type pass struct {
	tty, out *os.File // where it is typed and shown
	pty      *os.File // the command's, seen from our side
	signals  chan os.Signal
	stop     *os.File // closing it ends the reading of the keyboard
	stopped  *os.File // the other end of stop
	done     chan struct{}
	parts    sync.WaitGroup

	mu   sync.Mutex // held while something is shown
	over bool       // nothing more is shown

	modes sync.Mutex  // held while the modes of our terminal are changed
	was   *term.State // its modes before
	raw   bool        // they are ours
	ended bool        // they stay as they were

	keys keyLog
}

// backgroundCheck is how often we look whether we are in the foreground again.
const backgroundCheck = 100 * time.Millisecond

// begin makes our terminal raw: what is typed means something to the command's.
func (p *pass) begin(theirs *os.File) error {
	_ = pty.InheritSize(p.tty, p.pty) // or it keeps a size of its own
	if was, err := term.GetState(int(p.tty.Fd())); err == nil {
		p.was = was
		_ = term.Restore(int(theirs.Fd()), was) // or it keeps modes of its own
	}
	if err := p.makeRaw(); err != nil {
		return err
	}
	var err error
	if p.stopped, p.stop, err = os.Pipe(); err != nil {
		return errors.Join(err, p.restore(true))
	}
	p.signals = make(chan os.Signal, 2)
	signal.Notify(p.signals, syscall.SIGWINCH, syscall.SIGCONT)
	p.parts.Go(func() {
		for sig := range p.signals {
			if sig == syscall.SIGCONT {
				p.keys.touch() // somebody is there
				_ = p.makeRaw()
			}
			_ = pty.InheritSize(p.tty, p.pty)
		}
	})
	return nil
}

// makeRaw makes our terminal raw, unless we are in the background, where we would be
// stopped for it.
func (p *pass) makeRaw() error {
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

// restore gives our terminal its modes back, with last for good.
func (p *pass) restore(last bool) error {
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
func (p *pass) inBackground() bool {
	group, err := unix.IoctlGetInt(int(p.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// Size returns the size of the command's terminal.
func (p *pass) Size() (cols, rows int) {
	size, err := unix.IoctlGetWinsize(int(p.pty.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// DiscardInput forgets what was typed and not read yet.
func (p *pass) DiscardInput() {
	if !p.inBackground() {
		_ = flushInput(int(p.tty.Fd()))
	}
}

// Type types for the user.
func (p *pass) Type(text string) error {
	_, err := p.pty.WriteString(text)
	return err
}

// Typed returns when the user typed last, and whether that was without Enter.
func (p *pass) Typed() (t time.Time, draft bool) { return p.keys.last() }

// keyboard passes on what is typed, until stop is closed. A plain read could not
// be ended, and would swallow what is typed after us.
func (p *pass) keyboard() {
	tty := int(p.tty.Fd())
	fds := []unix.PollFd{{Fd: int32(p.stopped.Fd()), Events: unix.POLLIN}, {Fd: int32(tty), Events: unix.POLLIN}}
	buf := make([]byte, 4096)
	for {
		watched, timeout := fds, -1
		background := p.inBackground()
		if background { // we would be stopped for reading
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

// watch passes on what is typed, and what is shown to our terminal and to a watcher.
func (p *pass) watch(watcher io.Writer) {
	p.parts.Go(p.keyboard)
	// Not one of the parts that are waited for: it can't be ended while somebody
	// whom the command has left behind holds the terminal open.
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

// show passes on what can be read, unless the passing on is over. It reads under the
// lock: whoever has the lock knows that what was read has been shown.
func (p *pass) show(watcher io.Writer, buf []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	n, err := p.pty.Read(buf)
	_, _ = watcher.Write(buf[:n])
	_, _ = p.out.Write(buf[:n])
	return err == nil // EIO once nobody has the other end
}

// drain waits until what the command has written is shown.
func (p *pass) drain() {
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

// stopWait is how long our own stop may take.
const stopWait = 100 * time.Millisecond

// Suspend gives our terminal back and stops our job, as the terminal would have done
// for Ctrl-Z, because the command has stopped. It returns when the job is continued, or
// if there is no shell that could continue it.
func (p *pass) Suspend() {
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

// end gives our terminal back.
func (p *pass) end() error {
	select {
	case <-p.done:
	case <-time.After(time.Second): // somebody was left behind who has it open
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
