package chaos

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is an upstream that fails as its spec says.
type Server struct {
	options options
	http    *http.Server
	control http.Handler

	ctx     context.Context // ends with Close
	end     context.CancelFunc
	changed chan struct{} // the timetable may be another now
	running sync.WaitGroup

	mu       sync.Mutex
	idle     *sync.Cond // a handler or a connection has ended
	state    *state
	stats    *Stats
	active   int // requests in progress
	handlers int // goroutines that deal with one
	conns    map[net.Conn]struct{}
	door     *door
	cert     *x509.Certificate
	closed   bool
}

// ErrRemote is why a server without [WithRemote] does not start.
var ErrRemote = errors.New("other machines can reach that address, which must be wanted")

type options struct {
	tls      bool
	remote   bool
	observer func(Arrival)
	parse    func(contentType string, body []byte) (Spec, error)
}

// Option is how a server runs.
type Option func(*options)

// WithTLS makes the server speak TLS, with a certificate of its own making.
func WithTLS() Option { return func(o *options) { o.tls = true } }

// WithRemote lets the server listen where other machines can reach it. The control
// endpoint stays for this one.
func WithRemote() Option { return func(o *options) { o.remote = true } }

// WithObserver calls the function for each request, when it is decided what is
// done with it; calls do not overlap, and must not call the server.
func WithObserver(f func(Arrival)) Option { return func(o *options) { o.observer = f } }

// WithSpecParser sets the function that reads the body of POST /_chaos/spec, by its
// Content-Type. Without the option it is [Parse] for every type. A server that accepts
// another format, such as YAML, parses that here and calls Parse for the rest.
func WithSpecParser(parse func(contentType string, body []byte) (Spec, error)) Option {
	return func(o *options) { o.parse = parse }
}

// New returns a server that is not started yet.
func New(spec Spec, opts ...Option) (*Server, error) {
	s := &Server{changed: make(chan struct{}, 1), conns: map[net.Conn]struct{}{}}
	s.options.parse = func(_ string, body []byte) (Spec, error) { return Parse(string(body)) }
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("chaos: option: nil")
		}
		o(&s.options)
	}
	if s.options.parse == nil {
		return nil, errors.New("chaos: WithSpecParser: nil")
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.idle = sync.NewCond(&s.mu)
	s.control = s.newControl()
	if err := s.Set(spec); err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler: s, Protocols: protocols, ConnState: s.connState, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	return s, nil
}

// Start listens on the address, 127.0.0.1:0 if it is "", and returns. Where others
// could reach it, it listens only [WithRemote].
func (s *Server) Start(address string) error {
	address = cmp.Or(address, "127.0.0.1:0")
	if !loopback(address) && !s.options.remote {
		return fmt.Errorf("chaos: listen on %s: %w", address, ErrRemote)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.door != nil {
		return errors.New("chaos: a server starts once")
	}
	d, err := newDoor(address)
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	serve := s.http.Serve
	if s.options.tls {
		host, _, _ := net.SplitHostPort(address)
		cert, err := selfSigned(host, time.Now())
		if err != nil {
			_ = d.Close()
			return fmt.Errorf("chaos: certificate: %w", err)
		}
		s.cert = cert.Leaf
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	s.door = d
	s.restart(s.state.spec)
	s.running.Go(func() { _ = serve(d) })
	s.running.Go(s.keepDoor)
	return nil
}

// loopback reports whether only this machine can reach the address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // which is for the listener to complain about
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// URL returns where the server is, without a slash at the end; "" before Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.door == nil:
		return ""
	case s.options.tls:
		return "https://" + s.door.address
	}
	return "http://" + s.door.address
}

// Certificate returns the one that clients are to trust; nil without TLS, and
// before Start.
func (s *Server) Certificate() *x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cert
}

// Set replaces the rules and begins anew: requests are counted from 1, scripts
// start with their first answer, the timetable with now. Requests in progress go
// on as they began.
func (s *Server) Set(spec Spec) error {
	spec, err := Parse(spec.String())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restart(spec)
	return nil
}

// Reset begins anew with the same rules.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restart(s.state.spec)
}

// restart begins anew. The caller holds the lock.
func (s *Server) restart(spec Spec) {
	now := time.Now()
	s.state, s.stats = newState(spec, now), newStats(spec, now)
	s.stats.Peak = s.active
	select {
	case s.changed <- struct{}{}:
	default: // it is on its way to look
	}
}

// Spec returns the rules.
func (s *Server) Spec() Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.spec
}

// Stats returns what has happened so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.stats.clone()
	c.InProgress, c.Open = s.active, len(s.conns)
	return c
}

// Close ends everything, requests in progress too, and waits for it.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	d := s.door
	s.mu.Unlock()
	s.end()
	if d == nil {
		return nil
	}
	_ = s.http.Close()
	_ = d.Close()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns { // one may have come in too late for the server to know it
		_ = raw(c).Close()
	}
	for s.handlers > 0 || len(s.conns) > 0 {
		s.idle.Wait()
	}
	return nil
}

// connState keeps the list of connections.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = struct{}{}
		s.stats.Connections++
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
		s.idle.Broadcast()
	default:
	}
}

// reopen is how soon a door is tried again that somebody else holds.
const reopen = 20 * time.Millisecond

// keepDoor closes and opens the door by the timetable.
func (s *Server) keepDoor() {
	for {
		s.mu.Lock()
		closed, next := s.state.refusing(time.Now())
		s.mu.Unlock()
		if closed {
			s.door.shut()
			s.killAll()
		} else if s.door.open() != nil {
			next = reopen
		}
		var timer <-chan time.Time // none if nothing changes by itself
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-timer:
		case <-s.changed:
		case <-s.ctx.Done():
			return
		}
	}
}

// killAll resets all connections, as the end of a process does.
func (s *Server) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		kill(c)
	}
}
