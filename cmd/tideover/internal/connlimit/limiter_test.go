package connlimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/connlimit"
	"github.com/tideover/tideover/internal/testwait"
)

// testServer is a server with limits. Each request for /wait signals waiting, and lasts until release
// is closed.
type testServer struct {
	t       *testing.T
	limiter *connlimit.Limiter
	address string
	waiting chan struct{}
	release chan struct{}
	idle    chan struct{} // has an element for each time that a connection became idle
}

func newTestServer(t *testing.T, l *connlimit.Limiter) *testServer {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{t: t, limiter: l, address: inner.Addr().String(), waiting: make(chan struct{}, 10), release: make(chan struct{}), idle: make(chan struct{}, 1000)}
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	state := func(c net.Conn, state http.ConnState) {
		connlimit.ConnState(c, state)
		if state == http.StateIdle {
			s.idle <- struct{}{}
		}
	}
	server := &http.Server{ConnState: state, Protocols: new(http.Protocols), Handler: l.LimitRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			s.waiting <- struct{}{}
			<-s.release
		}
	}), refuse)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l.Listen(inner, false))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		testwait.Receive(t, "the server ends", done)
	})
	return s
}

// client is a client with one connection.
type client struct {
	net.Conn
	r *bufio.Reader
}

func (s *testServer) dial(from string) *client {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

// get sends a request on the connection, and returns the status; 0 if the connection is closed.
func (c *client) get(path string) int {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return 0
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (s *testServer) want(what string, got, want int) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: status %d, want %d", what, got, want)
	}
}

// inUse waits until this many requests of /wait are in progress.
func (s *testServer) inUse(n int) {
	s.t.Helper()
	for range n {
		testwait.Receive(s.t, "a request is under way", s.waiting)
	}
}

// open waits until the server has this many connections.
func (s *testServer) open(n int) {
	s.t.Helper()
	testwait.Until(s.t, fmt.Sprint(n, " connections are open"), func() bool { return s.limiter.Stats().Open == n })
}

func TestTheConnectionThatIsIdleForLongestIsClosedFirst(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, &connlimit.Limiter{Max: 3})
	a, b, c := s.dial("127.0.0.1"), s.dial("127.0.0.2"), s.dial("127.0.0.3")
	for _, each := range []*client{b, a, c, b} { // after this, a has been idle for longest
		s.want("a request", each.get("/"), 200)
		testwait.Receive(t, "the connection is idle", s.idle) // it becomes idle only after the client has received the answer
	}
	d := s.dial("127.0.0.4")
	s.want("a new connection", d.get("/"), 200)
	s.want("the connection that was idle for longest", a.get("/"), 0)
	for _, each := range []*client{b, c, d} {
		s.want("another connection", each.get("/"), 200)
	}
	if st := s.limiter.Stats(); st.Open != 3 || st.Closed[connlimit.ListenerLimit] != 1 || st.Refused[connlimit.ListenerLimit] != 0 {
		t.Errorf("Stats = %+v", st)
	}
}

func TestConnectionsInUseAreKeptAndNewOnesRefused(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, &connlimit.Limiter{Max: 4, PerAddress: 2})
	codes := make(chan int, 2)
	for range 2 {
		c := s.dial("127.0.0.1")
		go func() { codes <- c.get("/wait") }()
	}
	s.inUse(2)
	s.want("a third connection of the address", s.dial("127.0.0.1").get("/"), 503)
	s.want("another address", s.dial("127.0.0.2").get("/"), 200)
	close(s.release)
	for range 2 {
		s.want("a request that was under way", testwait.Receive(t, "an answer", codes), 200)
	}
	if s.limiter.Stats().Refused[connlimit.AddressLimit] != 1 {
		t.Errorf("Stats = %+v", s.limiter.Stats())
	}
}

func TestRequestsOverHTTP2AreLimited(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, &connlimit.Limiter{Max: 4, Requests: 2})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	get := func(path string) int {
		req, _ := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+s.address+path, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	s.want("the first request", get("/"), 200) // all others use its connection
	codes := make(chan int, 2)
	for range 2 {
		go func() { codes <- get("/wait") }()
	}
	s.inUse(2)
	s.want("a third request", get("/"), 503)
	close(s.release)
	for range 2 {
		s.want("a request that was under way", testwait.Receive(t, "an answer", codes), 200)
	}
	s.open(1)
	// An HTTP/2 connection without a request is idle, and is closed for a new connection.
	var all []*client
	for range 4 {
		all = append(all, s.dial("127.0.0.1"))
		s.want("a new connection", all[len(all)-1].get("/"), 200)
	}
	if st := s.limiter.Stats(); st.Open != 4 || st.Closed[connlimit.ListenerLimit] != 1 || st.Refused[connlimit.RequestLimit] != 1 {
		t.Errorf("Stats = %+v", st)
	}
}

func TestTheRefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, &connlimit.Limiter{Max: 1})
	first := s.dial("127.0.0.1")
	code := make(chan int, 1)
	go func() { code <- first.get("/wait") }()
	s.inUse(1)
	c := s.dial("127.0.0.1")
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	text := fmt.Sprint(resp.Header.Get("Retry-After"), " ", string(body), err)
	if !strings.HasPrefix(text, "1 ") || !strings.Contains(text, "too many connections") || !strings.HasSuffix(text, "\n<nil>") {
		t.Errorf("the answer is %q", text)
	}
	close(s.release)
	testwait.Receive(t, "the first answer", code)
}

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ descriptors, attempts, reserve, socket, connections, def int }{
		{1 << 20, 64, 1152, 512, 349141, 4096},
		{20000, 64, 1152, 512, 6282, 4096},
		{4096, 64, 1152, 512, 981, 981},
		{1024, 64, 768, 128, 85, 85},
		{256, 64, 192, 32, 21, 21},
		{64, 64, 48, 16, 16, 16},
		{1024, 0, 256, 128, 256, 256},
	} {
		want := connlimit.Budget{Descriptors: c.descriptors, Reserve: c.reserve, Socket: c.socket, Connections: c.connections}
		if got := connlimit.Divide(c.descriptors, c.attempts); got != want || got.Default() != c.def {
			t.Errorf("Divide(%d, %d) = %+v, default %d; want %+v, %d", c.descriptors, c.attempts, got, got.Default(), want, c.def)
		}
	}
}
