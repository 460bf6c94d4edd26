//go:build unix

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spool keeps what was read from an input that can be read only once. Nothing
// is read before an attempt wants it, give or take the capacity of a pipe.
type spool struct {
	src   *os.File
	limit int64
	file  *os.File // nil while nothing has been read, and again once lost
	size  int64    // bytes in file
	ended bool     // all of src has been read
	lost  error    // why the bytes are not all there; nil if they are

	buf     []byte       // of the read under way, or of what it has read
	reading bool         // a read is under way, or its result not yet taken
	results chan reading // of the read under way
}

// reading is what came of reading.
type reading struct {
	n   int
	err error
}

func newSpool(src *os.File, limit int64) *spool {
	return &spool{src: src, limit: limit, buf: make([]byte, 64<<10), results: make(chan reading, 1)}
}

// feed writes the whole input to one attempt: first what the spool has, then
// the rest as it comes.
type feed struct {
	spool *spool
	child int // the command's end
	w     *os.File
	wake  *os.File // closed to end a wait for src
	woken int      // becomes readable when wake is closed
	quit  chan struct{}
	done  chan struct{}
}

func (s *spool) open() (*feed, error) {
	child, w, err := pipe(true)
	if err != nil {
		return nil, err
	}
	woken, wake, err := pipe(true)
	if err != nil {
		_ = syscall.Close(child)
		_ = w.Close()
		return nil, err
	}
	return &feed{spool: s, child: child, w: w, wake: wake, woken: woken, quit: make(chan struct{}), done: make(chan struct{})}, nil
}

func (f *feed) start() {
	_ = syscall.Close(f.child)
	go f.run()
}

func (f *feed) stop() {
	_ = f.w.SetWriteDeadline(time.Now())
	_ = f.wake.Close()
	close(f.quit)
	<-f.done
	_ = syscall.Close(f.woken)
}

func (f *feed) run() {
	defer close(f.done)
	defer f.w.Close()
	s := f.spool
	if s.size > 0 {
		if _, err := io.CopyBuffer(onlyWriter{f.w}, io.NewSectionReader(s.file, 0, s.size), make([]byte, 64<<10)); err != nil {
			return // the command has stopped reading, or has ended
		}
	}
	for !s.ended && (s.reading || f.readable()) {
		data, err := f.read()
		if err != nil {
			return
		}
		if _, err := f.w.Write(data); err != nil {
			return
		}
	}
}

// read reads from src and keeps what it read. Although src was readable the read
// may block for ever, when another process that reads the same pipe was faster.
// Then the end of the attempt leaves it under way, and the next attempt, if there
// is one, takes its result: no byte is lost, and nothing waits for it.
func (f *feed) read() ([]byte, error) {
	s := f.spool
	if !s.reading {
		s.reading = true
		go func() {
			n, err := unix.Read(fdOf(s.src), s.buf)
			s.results <- reading{n, err}
		}()
	}
	select {
	case r := <-s.results:
		s.reading = false
		return s.take(r)
	case <-f.quit:
		return nil, os.ErrDeadlineExceeded
	}
}

// readable waits until src has something, or its end; it returns false when
// the attempt is over first. Waiting this way leaves the mode of src alone,
// which other processes share, and leaves the bytes there.
func (f *feed) readable() bool {
	fds := []unix.PollFd{
		{Fd: int32(fdOf(f.spool.src)), Events: unix.POLLIN},
		{Fd: int32(f.woken), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || fds[1].Revents != 0:
			return false
		case fds[0].Revents != 0:
			return true
		}
	}
}

// take keeps what was read, and returns it.
func (s *spool) take(r reading) ([]byte, error) {
	switch {
	case errors.Is(r.err, unix.EAGAIN) || errors.Is(r.err, unix.EINTR):
		return nil, nil
	case r.err != nil:
		s.lose(fmt.Errorf("standard input: %w", r.err))
		return nil, r.err
	case r.n == 0:
		s.ended = true
		return nil, nil
	}
	data := s.buf[:r.n]
	if s.lost == nil {
		s.keep(data)
	}
	return data, nil
}

func (s *spool) keep(data []byte) {
	if s.size+int64(len(data)) > s.limit {
		s.lose(ErrInputTooLong)
		return
	}
	if s.file == nil {
		f, err := scratch()
		if err != nil {
			s.lose(err)
			return
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(data, s.size); err != nil {
		s.lose(err)
		return
	}
	s.size += int64(len(data))
}

// lose gives up on replaying. What the current attempt gets is not affected.
func (s *spool) lose(err error) {
	s.lost = err
	if s.file != nil {
		_ = s.file.Close()
		s.file, s.size = nil, 0
	}
}
