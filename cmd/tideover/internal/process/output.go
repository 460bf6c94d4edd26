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

// copySize is the size of the copy buffer.
const copySize = 256 << 10

// onlyReader hides WriteTo, and onlyWriter hides ReadFrom: with these methods, io.CopyBuffer would not
// use our buffer.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// output is an output stream of the command. If it need not be matched, buffered or stored, the command
// gets our own descriptor.
type output struct {
	dst    *os.File
	match  *regexp.Regexp
	buffer bool
	latest *os.File        // output of the latest attempt, if buffer is set
	broken error           // why latest is incomplete
	held   *heldStream     // stores the output of all attempts; nil if it is not stored
	line   string          // last line of the latest attempt; empty if the command had our descriptor
	tee    *tee            // of the current attempt; nil if the command has our descriptor
	last   <-chan struct{} // closed when the last abandoned tee has finished; nil if none was abandoned
}

// open returns the descriptor for the next attempt.
func (o *output) open() (fd uintptr, err error) {
	if o.match == nil && !o.buffer && o.held == nil {
		return uintptr(fdOf(o.dst)), nil
	}
	var dst io.Writer = o.dst
	if o.held != nil {
		dst = o.held
	}
	if o.buffer {
		_ = o.close()
		o.broken = nil
		if o.latest, err = scratch(); err != nil {
			return 0, err
		}
		dst = o.latest
	}
	child, r, err := pipe(false)
	if err != nil {
		return 0, err
	}
	growPipe(child)
	o.tee = &tee{child: child, r: r, dst: dst, lines: newLines(o.match), after: o.last, done: make(chan struct{})}
	return uintptr(child), nil
}

// started must be called after the command was started, or could not be started. It closes our copy
// of the command's descriptor and starts to copy the output.
func (o *output) started() {
	if o.tee != nil {
		_ = syscall.Close(o.tee.child)
		go o.tee.run()
	}
}

// finish must be called when the command has ended. It returns whether a line matched, and an error
// if output was not written. It does not wait for processes that the command left running, which may
// still write.
func (o *output) finish(ctx context.Context, s *Supervisor) (matched bool, err error) {
	if o.tee == nil {
		return false, nil
	}
	t := o.tee
	o.tee, o.line = nil, ""
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
	o.line = t.tail.line()
	return t.lines.found, err
}

// errStalled means that the reader of our output has stopped reading.
var errStalled = errors.New("the reader does not read")

// wait returns true when all output is copied. Because the reader of our output may be stuck for ever,
// wait returns false a grace period after the end of the supervisor or of ctx.
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

// passOn writes the buffered output.
func (o *output) passOn() error {
	if o.latest == nil || o.broken != nil {
		return o.broken
	}
	if _, err := o.latest.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyBuffer(onlyWriter{o.dst}, onlyReader{o.latest}, make([]byte, copySize))
	return err
}

func (o *output) close() error {
	if o.latest == nil {
		return nil
	}
	err := o.latest.Close()
	o.latest = nil
	return err
}

// tee copies a stream and matches its lines.
type tee struct {
	child int // the command's end of the pipe
	r     *os.File
	dst   io.Writer
	lines *lines
	tail  tail
	after <-chan struct{} // wait until it is closed before writing; nil means at once
	err   error           // of the last write
	done  chan struct{}

	abandoned atomic.Bool // the rest need not be written
}

func (t *tee) run() {
	defer close(t.done)
	// Closing our end makes writes of the command fail.
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
			t.lines.finish()
			return
		}
	}
}

// drain copies the current contents of the pipe, but not later output: a daemon that the command
// has left running may never stop writing.
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
	t.tail.write(p)
	_, t.err = t.dst.Write(p)
	return t.err == nil
}
