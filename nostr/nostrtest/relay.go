package nostrtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
)

// Relay is a relay in this process. All methods may be called at any time from
// any goroutine.
type Relay struct {
	core *core
	addr string

	mu     sync.Mutex
	server *server // nil while it is stopped
	closed bool
}

// New returns a relay that listens on a free port of 127.0.0.1 until the test has
// ended.
func New(tb testing.TB, opts ...Option) *Relay {
	tb.Helper()
	r, err := Start("127.0.0.1:0", opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

// Start returns a relay that listens on the address, for programs that are not
// tests. Port 0 means a free one; [Relay.URL] returns it. The caller must close
// the relay.
func Start(addr string, opts ...Option) (*Relay, error) {
	r := &Relay{core: newCore(newOptions(opts)), addr: addr}
	if err := r.Restart(); err != nil {
		return nil, err
	}
	return r, nil
}

// URL returns the relay's address, ws://127.0.0.1:port. It never changes.
func (r *Relay) URL() string { return r.core.url }

// Close ends the relay for good: its socket, its links and all its goroutines.
// Its stored events can still be read.
func (r *Relay) Close() { r.stop(true) }

// Stop begins an outage: links break, and no client can connect. Stored events
// are kept.
func (r *Relay) Stop() { r.stop(false) }

func (r *Relay) stop(forever bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = r.closed || forever
	if r.server != nil {
		r.server.stop()
		r.server = nil
	}
}

// Restart ends an outage: the relay listens on its port again. It does nothing
// if the relay is not stopped. It fails if the relay is closed, or if another
// process has taken the port.
func (r *Relay) Restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errors.New("restart: the relay is closed: start a new one")
	case r.server != nil:
		return nil
	}
	l, err := listen(r.addr)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	if r.core.url == "" {
		r.addr = l.Addr().String()
		r.core.url = "ws://" + r.addr
	}
	r.server = serve(l, r.core)
	return nil
}

// listen listens on the address. For port 0 it chooses a port below the range that
// systems use for outgoing connections, so that no other connection has taken the
// port when the relay restarts.
func listen(addr string) (net.Listener, error) {
	var sockets net.ListenConfig
	ctx := context.Background() // it matters for name lookups only
	if host, port, err := net.SplitHostPort(addr); err == nil && port == "0" {
		for range 100 {
			low := strconv.Itoa(12_000 + rand.IntN(18_000))
			if l, err := sockets.Listen(ctx, "tcp", net.JoinHostPort(host, low)); err == nil {
				return l, nil
			}
		}
	}
	return sockets.Listen(ctx, "tcp", addr)
}

// Cut breaks all links with a TCP reset. New ones are accepted.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		r.server.breakLinks()
	}
}

// Change changes the relay's faults. The function must not call the relay,
// which is locked meanwhile.
func (r *Relay) Change(change func(*Faults)) { r.core.update(func() { change(&r.core.faults) }) }

// Inject stores an event and delivers it to matching subscriptions, as if a
// client had published it. It is not verified, so that forged events can be
// injected, and is delivered even if one with this id is stored. A forged
// deletion deletes nothing.
func (r *Relay) Inject(e *nostr.Event) {
	own := *e // the caller may change theirs
	own.Tags = slices.Clone(e.Tags)
	honest := own.Verify() == nil // before the lock is taken
	r.core.update(func() { r.core.storeAndDeliver(&own, honest) })
}

// Raw sends a text to all clients, without any check.
func (r *Relay) Raw(frame string) { r.core.raw(frame) }

// Events returns the stored events, in the order of arrival. The caller must
// not change them.
func (r *Relay) Events() (list []*nostr.Event) {
	r.core.read(func() { list = slices.Clone(r.core.store.events) })
	return list
}

// Received returns the last messages of clients, in the order of arrival. The
// caller must not change them.
func (r *Relay) Received() (list []Received) {
	r.core.read(func() { list = slices.Clone(r.core.received.list) })
	return list
}

// Connections returns how many links there are.
func (r *Relay) Connections() (n int) {
	r.core.read(func() { n = len(r.core.sessions) })
	return n
}

// Wait waits until the condition holds for the stored events. It calls holds at
// once, and again after every change at the relay: an event, a message, a link,
// a fault. holds may call the relay. The error is that of the context.
func (r *Relay) Wait(ctx context.Context, holds func(stored []*nostr.Event) bool) error {
	for {
		changed := r.core.read(func() {})
		if holds(r.Events()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("relay: wait with %d events stored: %w", len(r.Events()), context.Cause(ctx))
		}
	}
}

// Await is [Relay.Wait] for tests: it fails the test if the condition does not
// hold shortly before the deadline of the test binary. Call it from the test's
// own goroutine.
func (r *Relay) Await(tb testing.TB, holds func(stored []*nostr.Event) bool) {
	tb.Helper()
	if err := r.Wait(testwait.Context(tb), holds); err != nil {
		tb.Fatal(err)
	}
}

// maxReceivedBytes limits the stored messages, besides their number.
const maxReceivedBytes = 64 << 20

// Received is a message from a client.
type Received struct {
	Link    int            // number of the link, from 1
	Frame   string         // as it arrived
	Message *nostr.Message // nil if it is not a valid message
}

// received stores the last messages.
type received struct {
	limit int
	list  []Received
	bytes int
}

func (r *received) add(m Received) {
	r.list = append(r.list, m)
	r.bytes += len(m.Frame)
	for len(r.list) > r.limit || r.bytes > maxReceivedBytes {
		r.bytes -= len(r.list[0].Frame)
		r.list[0] = Received{} // frees its memory before the array is freed
		r.list = r.list[1:]
	}
}

// The default limits of stored events and messages.
const (
	defaultEvents   = 100_000
	defaultReceived = 10_000
)

// Option configures a new relay.
type Option func(*options)

type options struct {
	events, received int
	faults           Faults
}

func newOptions(list []Option) options {
	o := options{events: defaultEvents, received: defaultReceived}
	for _, set := range list {
		set(&o)
	}
	return o
}

// KeepEvents limits the stored events; the oldest are dropped first. The
// default is 100 000, the least is 1.
func KeepEvents(n int) Option { return func(o *options) { o.events = max(n, 1) } }

// KeepReceived limits the messages that [Relay.Received] returns; the oldest
// are dropped first. The default is 10 000, the least is 1.
func KeepReceived(n int) Option { return func(o *options) { o.received = max(n, 1) } }

// WithFaults sets the faults of the relay from the start.
func WithFaults(f Faults) Option { return func(o *options) { o.faults = f } }
