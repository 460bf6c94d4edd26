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

// Server is an HTTP server that fails as its spec says.
type Server struct {
	options options
	http    *http.Server
	control http.Handler

	ctx     context.Context // canceled by Close
	end     context.CancelFunc
	changed chan struct{} // signals that the times of outages may have changed
	running sync.WaitGroup

	mu       sync.Mutex
	idle     *sync.Cond // signals that a handler or a connection has ended
	state    *state
	stats    *Stats
	active   int // requests in progress
	handlers int // running handlers, including those that have released their request
	conns    map[net.Conn]struct{}
	listener *listener
	cert     *x509.Certificate
	closed   bool
}

// ErrRemote is the error of [Server.Start] for an address that other machines can reach,
// unless the server was made with [WithRemote].
var ErrRemote = errors.New("other machines can reach that address; this must be allowed explicitly")

type options struct {
	tls      bool
	remote   bool
	observer func(Arrival)
	parse    func(contentType string, body []byte) (Spec, error)
}

// Option is a setting of a server.
type Option func(*options)

// WithTLS makes the server use TLS with a self-signed certificate; see
// [Server.Certificate].
func WithTLS() Option { return func(o *options) { o.tls = true } }

// WithRemote lets the server listen on addresses that other machines can reach. The
// control endpoint still accepts only requests from this machine.
func WithRemote() Option { return func(o *options) { o.remote = true } }

// WithObserver sets a function that is called for each request when its answer is chosen.
// Calls do not overlap. The function must not call methods of the server.
func WithObserver(f func(Arrival)) Option { return func(o *options) { o.observer = f } }

// WithSpecParser sets the function that reads the body of POST /_chaos/spec, by its
// Content-Type. The default is [Parse] for every type. Use it to accept
// another format, such as YAML; call Parse for all other types.
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

// Must is [New] for package variables and tests: it panics with the error that New
// would return. It accepts a spec or the text form of one, as [Parse] reads it.
func Must[S Spec | string](spec S, opts ...Option) *Server {
	parsed, ok := any(spec).(Spec)
	if !ok {
		parsed = MustParse(any(spec).(string))
	}
	s, err := New(parsed, opts...)
	if err != nil {
		panic(err)
	}
	return s
}

// TB is the part of [testing.TB] that [StartTest] needs; a *testing.T has it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// StartTest starts a server with the spec on a free port of the loopback interface, and
// closes it when the test ends. An invalid spec fails the test.
func StartTest(t TB, spec string, opts ...Option) *Server {
	t.Helper()
	parsed, err := Parse(spec)
	if err != nil {
		t.Fatalf("%v", err)
	}
	s, err := New(parsed, opts...)
	if err == nil {
		err = s.Start("")
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Start listens on the address and returns; "" means 127.0.0.1:0. A server can be started
// only once. An address that other machines can reach requires [WithRemote].
func (s *Server) Start(address string) error {
	address = cmp.Or(address, "127.0.0.1:0")
	if !loopback(address) && !s.options.remote {
		return fmt.Errorf("chaos: listen on %s: %w", address, ErrRemote)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.listener != nil {
		return errors.New("chaos: the server was already started or closed")
	}
	d, err := newListener(address)
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
	s.listener = d
	s.restart(s.state.spec)
	s.running.Go(func() { _ = serve(d) })
	s.running.Go(s.followTimetable)
	return nil
}

// loopback reports whether only this machine can reach the address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // Listen reports the error
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// URL returns the base URL of the server, without a slash at the end; "" before Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.listener == nil:
		return ""
	case s.options.tls:
		return "https://" + s.listener.addr.String()
	}
	return "http://" + s.listener.addr.String()
}

// Certificate returns the certificate that clients have to trust. It is nil without TLS
// and before Start.
func (s *Server) Certificate() *x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cert
}

// Set replaces the rules and starts over: requests count from 1, scripts start
// with their first answer, and the times of outages count from now. Requests in progress
// keep their answers.
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

// Reset starts over with the same rules, like [Server.Set].
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restart(s.state.spec)
}

// restart starts over with the spec. The caller holds the lock.
func (s *Server) restart(spec Spec) {
	now := time.Now()
	s.state, s.stats = newState(spec, now), newStats(spec, now)
	s.stats.Peak = s.active
	select {
	case s.changed <- struct{}{}:
	default: // a signal is already pending
	}
}

// Spec returns the current spec.
func (s *Server) Spec() Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.spec
}

// Stats returns counts and the latest requests since the start, or since the last Set or
// Reset.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.stats.clone()
	c.InProgress, c.Open = s.active, len(s.conns)
	return c
}

// Close ends the server with all connections and requests in progress, and waits for
// its goroutines. The error is always nil.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	d := s.listener
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
	for c := range s.conns { // http.Server.Close may have missed the latest
		_ = raw(c).Close()
	}
	for s.handlers > 0 || len(s.conns) > 0 {
		s.idle.Wait()
	}
	return nil
}

// connState keeps s.conns up to date.
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

// reopen is how long to wait before trying again to open a port that another program uses.
const reopen = 20 * time.Millisecond

// followTimetable closes and opens the port at the times of the outages.
func (s *Server) followTimetable() {
	for {
		s.mu.Lock()
		closed, next := s.state.refusing(time.Now())
		s.mu.Unlock()
		if closed {
			s.listener.shut()
			s.killAll()
		} else if s.listener.open() != nil {
			next = reopen
		}
		var timer <-chan time.Time // nil if nothing changes by itself
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

// killAll resets all connections, as if the process had ended.
func (s *Server) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		kill(c)
	}
}
