package retryhttp

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// How much of a response is read ahead before it is known whether the caller
// will see it. A body that ends within these bounds leaves its connection to
// others; the connection of any other is given up with it.
const (
	peekBytes = 64 << 10
	peekTime  = 50 * time.Millisecond
)

// peeked is a response body whose beginning was read ahead. It reads like the
// body itself.
type peeked struct {
	body io.ReadCloser
	done chan struct{}     // closed when nothing more is read ahead
	seen func([]byte) bool // reports that this is enough; nil means that nothing is

	mu     sync.Mutex
	buf    []byte        // what was read ahead
	off    int           // of what the caller has seen
	err    error         // how the body ended, if it did
	heard  time.Duration // when something was read last, by the clock
	stop   bool          // time is up
	closed bool
}

// peek reads ahead, for so long, until what was read is enough. A read that
// blocks for longer is left to a goroutine, which ends with the read: when there
// is something to read, or the body is closed.
//
// With patience it reads on after that, until anything comes. It reports whether the body
// has been silent for so long.
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

// awaitMore waits until something more is read, and reports whether nothing came for so
// long.
func (p *peeked) awaitMore(t *time.Timer, patience time.Duration) bool {
	p.mu.Lock()
	left := patience - (clock.Now() - p.heard)
	p.stop = true // the next read is the last
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

// result returns what was read ahead, and how the body ended if it did.
func (p *peeked) result() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clip(p.buf), p.err
}

// breakOff makes err the error after what was read ahead. The body has ended.
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

// ahead reads from what was read ahead.
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
		// The body of a compressed answer can't be closed while it is read. A server
		// that says nothing more must not hold up the caller, so this is left to
		// another goroutine, which ends with the read: when the request's context does,
		// or the server sends something.
		go func() { _ = p.body.Close() }()
		return nil
	}
}
