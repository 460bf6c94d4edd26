package retryhttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
)

// A body without GetBody is stored while it is read, so that it can be sent again.
const (
	keptInMemory = 256 << 10 // bytes in memory; the rest goes to a file
	keptInAll    = 16 << 20  // a longer body is not stored, and sent once
)

// replay is a request body that can be read several times. Each attempt has its own
// reader. The store has the bytes that earlier readers have read from the source. A
// reader of an earlier attempt, which a transport may still hold, gets nothing more.
type replay struct {
	src     io.Closer // the caller's body
	store   store
	reading sync.Mutex // held while the store is read, also while the source blocks

	mu    sync.Mutex
	timer *attemptTimer // timer of the attempt; nil means that it has no limits
	epoch int           // number of the current attempt; readers of earlier ones have ended
	open  int           // open readers of this epoch, plus one for the exchange
	err   error         // error of the source
}

func newReplay(req *http.Request) *replay {
	r := &replay{src: req.Body, open: 1}
	if s, ok := req.Body.(io.ReadSeeker); ok {
		if start, err := s.Seek(0, io.SeekCurrent); err == nil {
			r.store = &seekable{src: s, start: start}
			return r
		}
	}
	r.store = newSpool(req.Body, req.ContentLength)
	return r
}

// next returns the body of the next attempt. It ends all readers of earlier attempts.
func (r *replay) next() io.ReadCloser {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	r.open = 2
	return &reader{r: r, epoch: r.epoch}
}

// time sets the timer of the attempt for its body, and for all bodies that get returns
// during the attempt.
func (r *replay) time(body io.ReadCloser, s *attemptTimer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer = s; s != nil {
		body.(*reader).timer = s
	}
}

// get is the GetBody of an attempt, for a transport that repeats requests by itself.
func (r *replay) get() (io.ReadCloser, error) {
	if err := r.store.lost(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == 0 {
		return nil, http.ErrBodyReadAfterClose
	}
	r.open++
	return &reader{r: r, epoch: r.epoch, timer: r.timer}, nil
}

// failed returns the error of the source, or nil.
func (r *replay) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// end ends the exchange. If there was an answer, the transport may still be sending:
// then the source is closed when the transport closes its reader.
func (r *replay) end(answered bool) {
	r.store.seal()
	r.mu.Lock()
	was := r.open
	if answered && was > 0 {
		r.open--
	} else {
		r.epoch++
		r.open = 0
	}
	now := r.open
	r.mu.Unlock()
	if was > 0 && now == 0 {
		r.close()
	}
}

func (r *replay) close() {
	_ = r.src.Close()
	r.store.close()
}

// reader reads the body of a replay from its start.
type reader struct {
	r      *replay
	timer  *attemptTimer // timer of the attempt; nil means that it has no limits
	epoch  int
	off    int64
	closed bool
}

func (b *reader) Read(p []byte) (int, error) {
	b.timer.await(true)
	defer b.timer.await(false)
	b.r.reading.Lock()
	defer b.r.reading.Unlock()
	if b.ended() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.r.store.readAt(p, b.off)
	b.off += int64(n)
	if err != nil && !errors.Is(err, io.EOF) && !b.ended() {
		b.r.mu.Lock()
		b.r.err = err
		b.r.mu.Unlock()
	}
	return n, err
}

func (b *reader) ended() bool {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	return b.closed || b.epoch != b.r.epoch
}

// Close does not wait for a Read, because closing the source ends the Read.
func (b *reader) Close() error {
	r := b.r
	r.mu.Lock()
	last := false
	if !b.closed && b.epoch == r.epoch {
		r.open--
		last = r.open == 0
	}
	b.closed = true
	r.mu.Unlock()
	if last {
		r.close()
	}
	return nil
}

// store gives access to the bytes of a body by offset.
type store interface {
	readAt(p []byte, off int64) (int, error) // not called concurrently
	lost() error                             // why the body can't be read again, or nil
	seal()                                   // the body will not be read from the start again
	close()                                  // nothing will be read any more
}

// spool is a store that keeps the bytes that are read from a source: the beginning in
// memory, the rest in an unlinked file. It never fails a request: if the bytes can't be
// stored, the reader still gets them, and the body can't be sent again.
type spool struct {
	src io.Reader
	mem []byte
	end error // error or io.EOF with which the source ended

	taken  atomic.Int64 // bytes read from the source
	gone   atomic.Pointer[error]
	sealed atomic.Bool
	closed atomic.Bool
	file   atomic.Pointer[spoolFile]
}

// newSpool returns a spool for a body. A length of 0 or less means that it is unknown.
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

// again reads bytes that were stored.
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
		if s.closed.Load() { // close may have run while the file was created
			f.remove()
		}
	}
	_, err := f.WriteAt(b, off)
	return err
}

// drop deletes the stored bytes. The current reader continues with the source.
func (s *spool) drop(why error) {
	s.gone.CompareAndSwap(nil, &why)
	s.mem = nil
	if f := s.file.Load(); f != nil {
		f.remove()
	}
}

// lost implements store. A body of which nothing has been read is not lost.
func (s *spool) lost() error {
	if gone := s.gone.Load(); gone != nil && s.taken.Load() > 0 {
		return *gone
	}
	return nil
}

// seal implements store. The reader may still need stored bytes, so readAt deletes them
// only at the next read from the source.
func (s *spool) seal() { s.sealed.Store(true) }

func (s *spool) close() {
	s.closed.Store(true)
	if f := s.file.Load(); f != nil {
		f.remove()
	}
}

// spoolFile is a temporary file, unlinked where the system allows it.
type spoolFile struct {
	*os.File
	named bool // the file could not be unlinked while it is open
}

func newSpoolFile() (*spoolFile, error) {
	f, err := os.CreateTemp("", "retryhttp-*") // mode 0600
	if err != nil {
		return nil, err
	}
	return &spoolFile{f, os.Remove(f.Name()) != nil}, nil
}

// remove may be called more than once, and while the file is in use.
func (f *spoolFile) remove() {
	if err := f.Close(); err == nil && f.named {
		_ = os.Remove(f.Name())
	}
}

// seekable is a store for a source that can seek, so it keeps no bytes.
type seekable struct {
	src   io.ReadSeeker
	start int64 // position in the source where the body begins
	pos   int64 // current position, relative to start
}

func (s *seekable) readAt(p []byte, off int64) (int, error) {
	if s.pos != off {
		if _, err := s.src.Seek(s.start+off, io.SeekStart); err != nil {
			return 0, err
		}
		s.pos = off
	}
	n, err := s.src.Read(p)
	s.pos += int64(n)
	return n, err
}

func (*seekable) lost() error { return nil }
func (*seekable) seal()       {}
func (*seekable) close()      {}
