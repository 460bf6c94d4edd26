package retryhttp

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// spool is a store that keeps what is read from a source: the beginning in
// memory, the rest in a file that has no name. It never fails a request; a body
// that can't be kept is passed on and lost.
type spool struct {
	src io.Reader
	mem []byte
	end error // how the source ended

	taken  atomic.Int64 // bytes read from the source
	gone   atomic.Pointer[error]
	sealed atomic.Bool
	closed atomic.Bool
	file   atomic.Pointer[spoolFile]
}

// newSpool returns a spool for a body of the length, which may be unknown.
func newSpool(src io.Reader, length int64) *spool {
	s := &spool{src: src}
	if length > keptInAll {
		s.drop(errTooLong)
	}
	return s
}

var errTooLong = fmt.Errorf("%w: it has more than %d MiB", ErrBody, keptInAll>>20)

func (s *spool) readAt(p []byte, off int64) (int, error) {
	taken := s.taken.Load()
	switch {
	case off < taken:
		return s.again(p[:min(int64(len(p)), taken-off)], off)
	case s.end != nil:
		return 0, s.end
	}
	if s.sealed.Load() {
		s.drop(ErrBody)
	}
	n, err := s.src.Read(p)
	s.keep(p[:n])
	s.taken.Add(int64(n))
	s.end = err
	return n, err
}

// again reads what was kept.
func (s *spool) again(p []byte, off int64) (int, error) {
	if gone := s.gone.Load(); gone != nil {
		return 0, *gone
	}
	if off < int64(len(s.mem)) {
		return copy(p, s.mem[off:]), nil
	}
	f := s.file.Load()
	if f == nil {
		return 0, ErrBody
	}
	return f.ReadAt(p, off-keptInMemory)
}

func (s *spool) keep(b []byte) {
	at := s.taken.Load()
	switch {
	case s.gone.Load() != nil || len(b) == 0:
		return
	case at+int64(len(b)) > keptInAll:
		s.drop(errTooLong)
		return
	}
	fits := min(len(b), keptInMemory-len(s.mem))
	s.mem = append(s.mem, b[:fits]...)
	if rest := b[fits:]; len(rest) > 0 {
		if err := s.toFile(rest, at+int64(fits)-keptInMemory); err != nil {
			s.drop(fmt.Errorf("%w: %w", ErrBody, err))
		}
	}
}

func (s *spool) toFile(b []byte, off int64) error {
	f := s.file.Load()
	if f == nil {
		var err error
		if f, err = newSpoolFile(); err != nil {
			return err
		}
		s.file.Store(f)
		if s.closed.Load() { // while the file was made, and did not see it
			f.remove()
		}
	}
	_, err := f.WriteAt(b, off)
	return err
}

// drop forgets what was kept. The body goes on to its first reader.
func (s *spool) drop(why error) {
	s.gone.CompareAndSwap(nil, &why)
	s.mem = nil
	if f := s.file.Load(); f != nil {
		f.remove()
	}
}

// lost implements store. A body of which nothing has been taken is still whole.
func (s *spool) lost() error {
	if gone := s.gone.Load(); gone != nil && s.taken.Load() > 0 {
		return *gone
	}
	return nil
}

// seal implements store. The reader may still be among what was kept, so that
// the next read from the source is the time to forget it.
func (s *spool) seal() { s.sealed.Store(true) }

func (s *spool) close() {
	s.closed.Store(true)
	if f := s.file.Load(); f != nil {
		f.remove()
	}
}

// spoolFile is a file that only we can see.
type spoolFile struct {
	*os.File
	named bool // it could not be unlinked while it is open
}

func newSpoolFile() (*spoolFile, error) {
	f, err := os.CreateTemp("", "retryhttp-*") // mode 0600
	if err != nil {
		return nil, err
	}
	return &spoolFile{f, os.Remove(f.Name()) != nil}, nil
}

// remove may be called while the file is in use, and more than once.
func (f *spoolFile) remove() {
	if err := f.Close(); err == nil && f.named {
		_ = os.Remove(f.Name())
	}
}
