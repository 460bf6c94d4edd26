package retryhttp

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// A body without GetBody is kept while it is read, so that it can be sent again.
const (
	keptInMemory = 256 << 10 // what comes after goes to a file
	keptInAll    = 16 << 20  // a longer body is sent once
)

// replay is a request body that can be read several times. Each attempt has a
// reader of its own; what one reader has taken from the source, the next finds
// in the store. A reader of an earlier attempt, which a transport may hold on
// to for a while, gets nothing more.
type replay struct {
	src     io.Closer
	store   store
	reading sync.Mutex // held while the store is read, for as long as the source blocks

	mu    sync.Mutex
	timer *attemptTimer // of the attempt; nil means that it has no limits
	epoch int           // of the readers that count
	open  int           // readers of this epoch, and the exchange itself
	err   error         // how the source failed
}

// store gives access to the bytes of a body by their offset.
type store interface {
	readAt(p []byte, off int64) (int, error) // one call at a time
	lost() error                             // why the body can't be read again, if it can't
	seal()                                   // it will not be read from the start again
	close()                                  // nothing will be read any more
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

// next returns the body of the next attempt. All readers before it have ended.
func (r *replay) next() io.ReadCloser {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	r.open = 2
	return &reader{r: r, epoch: r.epoch}
}

// time gives the body of the attempt, and those that its transport gets, the attempt's
// time.
func (r *replay) time(body io.ReadCloser, s *attemptTimer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer = s; s != nil {
		body.(*reader).timer = s
	}
}

// get is the GetBody of an attempt, for what a transport repeats by itself.
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

// failed returns how the source failed, if it did.
func (r *replay) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// end ends the exchange. After an answer, the transport may still be sending:
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

// reader reads a replay from its start.
type reader struct {
	r      *replay
	timer  *attemptTimer // of the attempt; nil means that it has no limits
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

// Close does not wait for a Read: closing the source is what ends it.
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

// seekable is a store that needs to keep nothing.
type seekable struct {
	src   io.ReadSeeker
	start int64 // where the body begins
	pos   int64 // where the source stands, from there
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
