//go:build unix

package process

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"sync/atomic"
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
	held   *os.File        // what the latest attempt wrote, if buffer is set
	broken error           // why held is not all of it
	tee    *tee            // of the current attempt; nil if the command has our descriptor
	last   <-chan struct{} // is closed when a tee that was left behind has written its last; nil without one
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
	o.tee = &tee{child: child, r: r, dst: dst, lines: newLines(o.match), after: o.last, done: make(chan struct{})}
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
// matched, and why not all that the command wrote was passed on.
// Processes that it left behind may still write; they are not waited for.
func (o *output) finish(ctx context.Context, s *Supervisor) (matched bool, err error) {
	if o.tee == nil {
		return false, nil
	}
	t := o.tee
	o.tee = nil
	_ = t.r.SetReadDeadline(time.Now())
	if !t.wait(ctx, s) {
		t.abandoned.Store(true)
		o.last = t.done
		return false, errStalled
	}
	if o.buffer {
		o.broken = t.err
	}
	if t.err != nil {
		err = &OutputError{t.err}
	}
	return t.lines.found, err
}

// errStalled is why output was not passed on when our own reader has stopped
// reading.
var errStalled = errors.New("nobody reads")

// wait returns true when all has been copied. Whoever reads our output may be
// stuck for ever, and we may not once we were told to end or the attempt's time
// is up: then it returns false after the grace.
func (t *tee) wait(ctx context.Context, s *Supervisor) bool {
	select {
	case <-t.done:
		return true
	case <-s.ctx.Done():
	case <-ctx.Done():
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
	after <-chan struct{} // nothing is written before it is closed; nil means at once
	err   error           // of writing
	done  chan struct{}

	abandoned atomic.Bool // what has not been written need not be
}

func (t *tee) run() {
	defer close(t.done)
	// Closing our end is what tells the command that its reader is gone.
	defer t.r.Close()
	if t.after != nil {
		<-t.after
	}
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

// drain passes on what the pipe holds, and not what comes later: a daemon that
// the command has left behind may never stop writing.
func (t *tee) drain(buf []byte) {
	conn, err := t.r.SyscallConn()
	if err != nil {
		return
	}
	_ = t.r.SetReadDeadline(time.Time{})
	held := 0
	_ = conn.Control(func(fd uintptr) { held, _ = unix.IoctlGetInt(int(fd), queued) })
	for held > 0 {
		n := 0
		_ = conn.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), buf[:min(held, len(buf))])
			return true
		})
		if n <= 0 || !t.pass(buf[:n]) {
			return
		}
		held -= n
	}
}

func (t *tee) pass(p []byte) bool {
	if t.abandoned.Load() {
		return false
	}
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
