package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// TestMain fails if the tests leak a goroutine of this package.
func TestMain(m *testing.M) {
	time.Local = time.UTC // golden files have times
	code := m.Run()
	if code == 0 {
		if left := testwait.Goroutines("tideover/retryhttp", "net/http.("); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// quiet discards the log of servers whose errors are expected.
var quiet = log.New(io.Discard, "", 0)

const quick = "fixed(0s) attempts=3"

// rig is a transport that records its events.
type rig struct {
	*retryhttp.Transport
	net *http.Transport

	mu     sync.Mutex
	events []retry.Event
}

// newRig returns a rig over a transport of net/http.
func newRig(t *testing.T, policy string, opts ...retryhttp.Option) *rig {
	t.Helper()
	transport := newNetTransport(t)
	g := newRigOver(t, policy, transport, opts...)
	g.net = transport
	return g
}

// newRigOver returns a rig over any transport.
func newRigOver(t *testing.T, policy string, next http.RoundTripper, opts ...retryhttp.Option) *rig {
	t.Helper()
	p, err := retry.Parse(policy)
	if err != nil {
		t.Fatal(err)
	}
	g := new(rig)
	opts = append(opts, retryhttp.WithRetry(retry.WithObserver(g.observe)))
	if g.Transport, err = retryhttp.New(p, next, opts...); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *rig) observe(e retry.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, e)
}

// count returns the number of events of the kind.
func (g *rig) count(k retry.EventKind) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// waits returns the recorded waits.
func (g *rig) waits() (ds []time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if e.Kind == retry.Waiting {
			ds = append(ds, e.Delay)
		}
	}
	return ds
}

// send makes a request and returns the response and its body.
func (g *rig) send(t *testing.T, req *http.Request) (resp *http.Response, body string) {
	t.Helper()
	resp, err := g.RoundTrip(req)
	if err != nil {
		t.Fatalf("RoundTrip(%s %s) = %v", req.Method, req.URL, err)
	}
	return resp, read(t, resp)
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("reading the body of %s: %v", resp.Status, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Errorf("closing the body of %s: %v", resp.Status, err)
	}
	return string(b)
}

// wantStatus checks the status, and how many requests the server got.
func wantStatus(t *testing.T, resp *http.Response, status int, s *scriptedServer, asked int) {
	t.Helper()
	if resp.StatusCode != status || s.asked() != asked {
		t.Errorf("got status %d after %d requests, want %d after %d", resp.StatusCode, s.asked(), status, asked)
	}
}

// wantReason checks the reason for which the transport gave up.
func wantReason(t *testing.T, resp *http.Response, want retry.Reason) *retry.Error {
	t.Helper()
	e, ok := retryhttp.GaveUp(resp)
	if !ok || e.Reason != want {
		t.Fatalf("GaveUp(%s) = %v, %v, want reason %v", resp.Status, e, ok, want)
	}
	return e
}

// scriptedServer is a server that answers with the steps of a script.
type scriptedServer struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string // bodies of the requests
	heads  []http.Header
	opened int
}

// answer is one step of a script; the last one repeats.
type answer struct {
	status int
	header string // lines of name: value
	body   string
}

func newScriptedServer(t *testing.T, script ...answer) *scriptedServer {
	t.Helper()
	s := new(scriptedServer)
	s.Server = memnet.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies = append(s.bodies, string(b))
		s.heads = append(s.heads, r.Header)
		a := script[min(len(s.bodies), len(script))-1]
		s.mu.Unlock()
		for line := range strings.Lines(a.header) {
			name, value, _ := strings.Cut(line, ":")
			w.Header().Set(name, strings.TrimSpace(value))
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			s.mu.Lock()
			s.opened++
			s.mu.Unlock()
		}
	}
	startServer(t, s.Server)
	return s
}

// newNetTransport returns a transport of net/http that reaches servers in memory.
func newNetTransport(t *testing.T) *http.Transport {
	t.Helper()
	transport := &http.Transport{DialContext: memnet.Dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// newServer starts a server in memory. Its Client reaches it, and so does newRig.
func newServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := memnet.NewUnstartedServer(h)
	startServer(t, s)
	return s
}

func startServer(t *testing.T, s *httptest.Server) {
	t.Helper()
	s.Start()
	t.Cleanup(s.Close)
	s.Client().Transport = newNetTransport(t)
}

// statuses returns a script of answers without headers.
func statuses(codes ...int) (script []answer) {
	for _, c := range codes {
		script = append(script, answer{c, "", fmt.Sprintf("body of %d", c)})
	}
	return script
}

func (s *scriptedServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

func (s *scriptedServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (s *scriptedServer) got(i int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[i]
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	return requestWith(t, t.Context(), method, url, body)
}

func requestWith(t *testing.T, ctx context.Context, method, url string, body io.Reader) *http.Request { //nolint:revive // t comes first
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// trackedBody is a body without GetBody or Seek that records when it is closed.
type trackedBody struct {
	io.Reader
	mu     sync.Mutex
	closed int
	done   chan struct{}
}

func track(r io.Reader) *trackedBody { return &trackedBody{Reader: r, done: make(chan struct{})} }

func (b *trackedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed++; b.closed == 1 {
		close(b.done)
	}
	return nil
}

// waitUntilClosed waits until the body is closed, because a transport may close it on a
// goroutine of its own.
func (b *trackedBody) waitUntilClosed() { <-b.done }

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// listen serves raw connections in memory, one after the other.
func listen(t *testing.T, serve func(n int, c net.Conn)) string {
	t.Helper()
	return serveRaw(t, memnet.Listen(), serve)
}

// serveRaw serves the connections of a listener, one after the other.
func serveRaw(t *testing.T, l net.Listener, serve func(n int, c net.Conn)) string {
	t.Helper()
	done := make(chan struct{})
	var last atomic.Pointer[net.Conn]
	var ended atomic.Bool
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if last.Store(&c); ended.Load() {
				_ = c.Close() // the cleanup may have closed the one before
			}
			serve(n, c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		ended.Store(true)
		if c := last.Load(); c != nil {
			_ = (*c).Close()
		}
		<-done
	})
	return l.Addr().String()
}
