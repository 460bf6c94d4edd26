package nostrtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/tideover/tideover/nostr"
)

// Relay is a relay in this process. All methods may be called at any time by
// anybody.
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

// Start returns a relay that listens on the address, for programs that are no
// tests. Port 0 is a free one; [Relay.URL] says which. The caller closes it.
func Start(addr string, opts ...Option) (*Relay, error) {
	r := &Relay{core: newCore(newOptions(opts)), addr: addr}
	if err := r.Restart(); err != nil {
		return nil, err
	}
	return r, nil
}

// URL returns where the relay is, ws://127.0.0.1:port. It stays the same.
func (r *Relay) URL() string { return r.core.url }

// Close ends the relay for good: its socket, its links and everything that runs.
// What it has stored can still be looked at.
func (r *Relay) Close() {
	r.stop(true)
}

// Stop is the beginning of an outage: links break, and nobody can connect. What is
// stored is kept.
func (r *Relay) Stop() {
	r.stop(false)
}

func (r *Relay) stop(forever bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = r.closed || forever
	if r.server != nil {
		r.server.stop()
		r.server = nil
	}
}

// Restart is the end of an outage: the relay listens on its port again. It does
// nothing for a relay that is not stopped. It fails for one that is closed, and when
// somebody else has taken the port.
func (r *Relay) Restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errors.New("relay: it is closed")
	case r.server != nil:
		return nil
	}
	var sockets net.ListenConfig
	l, err := sockets.Listen(context.Background(), "tcp", r.addr) // the context is for names, which take long
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

// Cut breaks all links without a goodbye. New ones are taken.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		r.server.cut()
	}
}

// Change changes what the relay does wrong, from now on. The function must not call
// the relay, which stands still meanwhile.
func (r *Relay) Change(change func(*Faults)) {
	r.core.do(func() { change(&r.core.faults) })
}

// Inject stores an event and hands it to all who want it, as if somebody had
// published it. It is not verified, so that forged ones can be planted, and is
// delivered even if one with this id is there. A forged deletion deletes nothing.
func (r *Relay) Inject(e *nostr.Event) {
	own := *e // the caller may go on with theirs
	own.Tags = slices.Clone(e.Tags)
	r.core.inject(&own)
}

// Raw sends a text to all who are connected, whatever it is.
func (r *Relay) Raw(frame string) { r.core.raw(frame) }

// Events returns what is stored, in the order of arrival. The events are not to be
// changed.
func (r *Relay) Events() (list []*nostr.Event) {
	r.core.look(func() { list = slices.Clone(r.core.store.events) })
	return list
}

// Received returns the last messages of clients, in the order of arrival. They are
// not to be changed.
func (r *Relay) Received() (list []Received) {
	r.core.look(func() { list = slices.Clone(r.core.received.list) })
	return list
}

// Connections returns how many links there are.
func (r *Relay) Connections() (n int) {
	r.core.look(func() { n = len(r.core.sessions) })
	return n
}
