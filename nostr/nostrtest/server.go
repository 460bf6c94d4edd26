package nostrtest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// server is a relay's socket with its links, from a start to a stop.
type server struct {
	core   *core
	http   *http.Server
	ctx    context.Context // ends with the server
	cancel context.CancelFunc
	work   sync.WaitGroup // accepting, connections that are not yet links, links

	mu    sync.Mutex
	links map[*link]struct{}
	over  bool
}

// wireKey is the context key for the [wire] of a request.
type wireKey struct{}

// serve starts a server on the socket.
func serve(l net.Listener, c *core) *server {
	s := &server{core: c, links: map[*link]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, wireKey{}, c) },
		ConnState:         s.count,
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // errors of misbehaving clients are expected
	}
	s.work.Go(func() { _ = s.http.Serve(listener{l, c}) }) // ends when it is closed
	return s
}

// count counts the connections that are not yet websocket links.
func (s *server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.work.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.work.Done()
	default:
	}
}

// ServeHTTP accepts a websocket and then serves the link.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.work.Add(1) // before count stops counting the connection
	defer s.work.Done()
	var f Faults
	s.core.read(func() { f = s.core.faults })
	if !s.pause(r.Context(), f.DialDelay) || f.RefuseDial {
		http.Error(w, "the relay takes no connections", http.StatusServiceUnavailable)
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // from any origin
	if err != nil {
		return // Accept has answered the client
	}
	defer func() { _ = socket.CloseNow() }() // already closed, unless the server is over
	wire, _ := r.Context().Value(wireKey{}).(*wire)
	wire.open.Store(true)
	s.serve(&link{core: s.core, wire: wire, socket: socket})
}

// pause waits for the duration. It returns false if the client or the server has gone
// before.
func (s *server) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d): // real clock: the delay is a fault that the test asked for
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

func (s *server) serve(l *link) {
	if !s.add(l) {
		return
	}
	l.run(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

// add registers a link, unless the server is over.
func (s *server) add(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		l.session = s.core.addSession()
		s.links[l] = struct{}{}
	}
	return !s.over
}

// breakLinks breaks all links.
func (s *server) breakLinks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		l.breakLink()
	}
}

// stop ends everything and waits for it.
func (s *server) stop() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	_ = s.http.Close() // the socket, and connections that are not yet links
	s.breakLinks()
	s.cancel()
	s.work.Wait()
}
