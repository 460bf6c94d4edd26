//go:build unix

package process

import (
	"errors"
	"io"
	"os"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// copySize is how much is copied at once.
const copySize = 256 << 10

// onlyReader hides WriteTo, and onlyWriter ReadFrom, which would not use our
// buffer.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// output is a stream that the command writes. If nobody has to look at it or
// hold it back the command gets our own descriptor, and we are not in the way.
type output struct {
	dst    *os.File
	match  *regexp.Regexp
	buffer bool
	held   *os.File // what the latest attempt wrote, if buffer is set
	broken error    // why held is not all of it
	tee    *tee     // of the current attempt; nil if the command has our descriptor
}

// open returns the descriptor for the next attempt.
func (o *output) open() (uintptr, error) {
	if o.match == nil && !o.buffer {
		return uintptr(fdOf(o.dst)), nil
	}
	dst := o.dst
	if o.buffer {
		_ = o.close()
		o.broken = nil
		var err error
		if o.held, err = scratch(); err != nil {
			return 0, err
		}
		dst = o.held
	}
	child, r, err := pipe(false)
	if err != nil {
		return 0, err
	}
	growPipe(child)
	o.tee = &tee{child: child, r: r, dst: dst, lines: newLines(o.match), done: make(chan struct{})}
	return uintptr(child), nil
}

// started is called when the attempt has its descriptor, or will not need it.
func (o *output) started() {
	if o.tee != nil {
		_ = syscall.Close(o.tee.child)
		go o.tee.run()
	}
}

// finish is called when the command has ended, and returns whether a line
// matched. Everything the command wrote is passed on before it returns.
// Processes that it left behind may still write; they are not waited for.
func (o *output) finish(s *Supervisor) (matched bool) {
	if o.tee == nil {
		return false
	}
	t := o.tee
	o.tee = nil
	_ = t.r.SetReadDeadline(time.Now())
	if !t.wait(s) {
		return false
	}
	if o.buffer {
		o.broken = t.err
	}
	return t.lines.found
}

// wait returns true when all has been copied. Whoever reads our output may be
// stuck for ever, and we may not once we were told to end: then it returns
// false after the grace.
func (t *tee) wait(s *Supervisor) bool {
	select {
	case <-t.done:
		return true
	case <-s.ctx.Done():
	}
	select {
	case <-t.done:
		return true
	case <-time.After(s.cfg.Grace):
		return false
	}
}

// passOn writes what was held back.
func (o *output) passOn() error {
	if o.held == nil || o.broken != nil {
		return o.broken
	}
	if _, err := o.held.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyBuffer(onlyWriter{o.dst}, onlyReader{o.held}, make([]byte, copySize))
	return err
}

func (o *output) close() error {
	if o.held == nil {
		return nil
	}
	err := o.held.Close()
	o.held = nil
	return err
}

// tee copies a stream and looks at its lines.
type tee struct {
	child int // the command's end
	r     *os.File
	dst   *os.File
	lines *lines
	err   error // of writing
	done  chan struct{}
}

func (t *tee) run() {
	defer close(t.done)
	// Closing our end is what tells the command that its reader is gone.
	defer t.r.Close()
	buf := make([]byte, copySize)
	for {
		n, err := t.r.Read(buf)
		if !t.pass(buf[:n]) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.drain(buf)
		}
		if err != nil {
			t.lines.end()
			return
		}
	}
}

// drain passes on what the pipe still holds, without waiting for more.
func (t *tee) drain(buf []byte) {
	conn, err := t.r.SyscallConn()
	if err != nil {
		return
	}
	_ = t.r.SetReadDeadline(time.Time{})
	for {
		n := 0
		_ = conn.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), buf)
			return true
		})
		if n <= 0 || !t.pass(buf[:n]) {
			return
		}
	}
}

func (t *tee) pass(p []byte) bool {
	t.lines.write(p)
	_, t.err = t.dst.Write(p)
	return t.err == nil
}

// readerGone reports whether our output is a pipe that nobody reads any more.
func (o *output) readerGone() bool {
	fds := []unix.PollFd{{Fd: int32(fdOf(o.dst))}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}
