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
// terminal of its own, of the same size, and we pass on what is typed and shown.
// So it behaves as it does without us, and we see what it says.
func Terminal(in, out, errs *os.File) func(*Spec) (Streams, error) {
	return func(*Spec) (Streams, error) {
		ours, theirs, err := pty.Open()
		if err != nil {
			return Streams{}, err
		}
		p := &pass{tty: in, out: out, pty: ours, done: make(chan struct{})}
		if err := p.begin(); err != nil {
			return Streams{}, errors.Join(err, ours.Close(), theirs.Close())
		}
		st := Streams{
			Stdin: theirs, Stdout: theirs, Stderr: theirs, Terminal: true, Watch: p.watch,
			Close: func() error { return errors.Join(theirs.Close(), p.end()) },
		}
		if !term.IsTerminal(int(errs.Fd())) {
			st.Stderr = errs // it was sent elsewhere
		}
		return st, nil
	}
}

// pass is the passing on between two terminals.
type pass struct {
	tty, out *os.File // where it is typed and shown
	pty      *os.File // the command's, seen from our side
	was      *term.State
	size     chan os.Signal
	stop     *os.File // closing it ends the reading of the keyboard
	done     chan struct{}
	parts    sync.WaitGroup

	mu   sync.Mutex
	over bool // nothing more is shown
}

// begin makes our terminal raw: what is typed means something to the command's.
func (p *pass) begin() error {
	_ = pty.InheritSize(p.tty, p.pty) // or it keeps a size of its own
	was, err := term.MakeRaw(int(p.tty.Fd()))
	if err != nil {
		return err
	}
	p.was = was
	r, w, err := os.Pipe()
	if err != nil {
		return errors.Join(err, p.restore())
	}
	p.stop = w
	p.size = make(chan os.Signal, 1)
	signal.Notify(p.size, syscall.SIGWINCH)
	p.parts.Go(func() {
		for range p.size {
			_ = pty.InheritSize(p.tty, p.pty)
		}
	})
	p.parts.Go(func() {
		defer r.Close()
		p.keyboard(r)
	})
	return nil
}

// keyboard passes on what is typed, until stop is closed. A plain read could not
// be ended, and would swallow what is typed after us.
func (p *pass) keyboard(stop *os.File) {
	fds := []unix.PollFd{{Fd: int32(p.tty.Fd()), Events: unix.POLLIN}, {Fd: int32(stop.Fd()), Events: unix.POLLIN}}
	buf := make([]byte, 4096)
	for {
		_, err := unix.Poll(fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) || fds[1].Revents != 0 {
			return
		}
		if fds[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(int(p.tty.Fd()), buf)
		if n <= 0 || err != nil {
			return
		}
		if _, err := p.pty.Write(buf[:n]); err != nil {
			return
		}
	}
}

// watch passes on what is shown, to our terminal and to a watcher.
func (p *pass) watch(watcher io.Writer) {
	// Not one of the parts that are waited for: it can't be ended while somebody
	// whom the command has left behind holds the terminal open.
	go func() {
		defer close(p.done)
		buf := make([]byte, 32<<10)
		for {
			n, err := p.pty.Read(buf)
			if !p.show(watcher, buf[:n]) || err != nil {
				return // EIO once nobody has the other end
			}
		}
	}()
}

// show passes on what was read, unless the passing on is over.
func (p *pass) show(watcher io.Writer, text []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	_, _ = watcher.Write(text)
	_, _ = p.out.Write(text)
	return true
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
	signal.Stop(p.size)
	close(p.size)
	err := errors.Join(p.stop.Close(), p.restore())
	p.parts.Wait()
	return errors.Join(err, p.pty.Close())
}

func (p *pass) restore() error { return term.Restore(int(p.tty.Fd()), p.was) }
