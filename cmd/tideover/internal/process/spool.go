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

// spool stores an input that can be read only once, so that later attempts can read it again. It reads
// no more of the input than the attempts have read, plus the capacity of a pipe.
type spool struct {
	src   *os.File
	limit int64
	file  *os.File // nil before the first read and after lost is set
	size  int64    // bytes in file
	ended bool     // all of src has been read
	lost  error    // why the stored input is incomplete; nil if it is complete

	buf     []byte       // of the pending read
	reading bool         // a read is pending, or its result was not received yet
	results chan reading // of the pending read
}

// reading is the result of a read.
type reading struct {
	n   int
	err error
}

// feed writes the whole input to one attempt: first the stored part, then the rest as it arrives.
type feed struct {
	spool *spool
	child int // the command's end of the pipe
	w     *os.File
	wake  *os.File // closing it ends readable
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
			return // the command has closed its input or has ended
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

// read reads from src and stores the data. Although src was readable, the read may block for ever
// if another process reads from the same pipe. Then the read stays pending at the end of the
// attempt, and the next attempt receives its result, so that no byte is lost.
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
		return s.accept(r)
	case <-f.quit:
		return nil, os.ErrDeadlineExceeded
	}
}

// readable waits until src has data or has ended; false if the attempt ends first. Polling does not
// change the mode of src, which other processes share, and consumes nothing.
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

// accept stores the result of a read and returns the data.
func (s *spool) accept(r reading) ([]byte, error) {
	switch {
	case errors.Is(r.err, unix.EAGAIN) || errors.Is(r.err, unix.EINTR):
		return nil, nil
	case r.err != nil:
		s.lose(fmt.Errorf("reading standard input: %w", r.err))
		return nil, r.err
	case r.n == 0:
		s.ended = true
		return nil, nil
	}
	data := s.buf[:r.n]
	if s.lost == nil {
		s.store(data)
	}
	return data, nil
}

func (s *spool) store(data []byte) {
	var err error
	if s.size+int64(len(data)) > s.limit {
		err = ErrInputTooLong
	} else if s.file == nil {
		s.file, err = scratch()
	}
	if err == nil {
		_, err = s.file.WriteAt(data, s.size)
	}
	if err != nil {
		s.lose(err)
		return
	}
	s.size += int64(len(data))
}

// lose deletes the stored input and records why later attempts can't get it. The current attempt still
// gets all of its input.
func (s *spool) lose(err error) {
	s.lost = err
	if s.file != nil {
		_ = s.file.Close()
		s.file, s.size = nil, 0
	}
}
