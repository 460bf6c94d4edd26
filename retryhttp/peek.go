package retryhttp

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// How much of a response is read ahead before it is decided whether the caller
// gets it. If the body ends within these limits, its connection can be used again;
// otherwise closing the body closes the connection.
const (
	peekBytes = 64 << 10
	peekTime  = 50 * time.Millisecond
)

// peeked is a response body whose beginning was read ahead. It reads like the
// body itself.
type peeked struct {
	body io.ReadCloser
	done chan struct{}     // closed when reading ahead has ended
	seen func([]byte) bool // reports whether enough was read; nil means to read up to the limits

	mu     sync.Mutex
	buf    []byte        // bytes read ahead
	off    int           // number of bytes of buf that the caller has read
	err    error         // error or io.EOF with which the body ended; nil until then
	heard  time.Duration // reading of the clock when bytes last arrived
	stop   bool          // the time to read ahead is over
	closed bool
}

// peek reads ahead for at most d, until enough returns true. If a read blocks for
// longer, a goroutine continues it; that goroutine ends when bytes arrive or
// the body is closed.
//
// If patience is above 0 and d has passed, peek waits for more bytes, until the body has
// been silent for patience. silent reports that this happened.
func peek(body io.ReadCloser, d, patience time.Duration, enough func([]byte) bool) (p *peeked, silent bool) {
	p = &peeked{body: body, done: make(chan struct{}), seen: enough, heard: clock.Now()}
	go p.read()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		silent = p.awaitMore(t, patience)
	}
	p.mu.Lock()
	p.stop = true
	whole := p.err != nil
	p.mu.Unlock()
	if whole {
		_ = body.Close()
	}
	return p, silent
}

// awaitMore waits until more bytes arrive. It returns true if the body has been silent for
// patience, and false if patience is 0.
func (p *peeked) awaitMore(t *time.Timer, patience time.Duration) bool {
	p.mu.Lock()
	left := patience - (clock.Now() - p.heard)
	p.stop = true // read stops after the next bytes
	p.mu.Unlock()
	if left <= 0 {
		return patience > 0
	}
	t.Reset(left)
	select {
	case <-p.done:
		return false
	case <-t.C:
		return true
	}
}

func (p *peeked) read() {
	defer close(p.done)
	chunk := make([]byte, 4<<10)
	for more := true; more; {
		n, err := p.body.Read(chunk)
		p.mu.Lock()
		p.buf, p.err, p.heard = append(p.buf, chunk[:n]...), err, clock.Now()
		more = err == nil && !p.stop && len(p.buf) < peekBytes && (p.seen == nil || !p.seen(p.buf))
		p.mu.Unlock()
	}
}

// result returns the bytes read ahead, and the error with which the body ended, if it
// has.
func (p *peeked) result() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clip(p.buf), p.err
}

// breakOff sets the error that Read returns after the bytes read ahead. The body must
// have ended.
func (p *peeked) breakOff(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// Read implements [io.Reader].
func (p *peeked) Read(b []byte) (int, error) {
	if n, err := p.ahead(b); n > 0 || err != nil || len(b) == 0 {
		return n, err
	}
	<-p.done
	p.mu.Lock()
	unread, err := p.off < len(p.buf), p.err
	p.mu.Unlock()
	switch {
	case unread:
		return p.ahead(b)
	case err != nil:
		return 0, err
	}
	return p.body.Read(b)
}

// ahead copies bytes that were read ahead into b. It returns 0 if there are none left.
func (p *peeked) ahead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(b, p.buf[p.off:])
	p.off += n
	return n, nil
}

// Close implements [io.Closer].
func (p *peeked) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	select {
	case <-p.done:
		return p.body.Close()
	default:
		// A compressed body can't be closed while it is read. The caller must not wait for a
		// server that sends nothing, so another goroutine closes the body. It ends when the
		// read does: at the end of the request's context, or if the server sends something.
		go func() { _ = p.body.Close() }()
		return nil
	}
}
