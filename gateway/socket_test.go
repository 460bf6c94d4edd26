package gateway

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// socketUpstream is a provider on a TCP socket that writes its answers byte by byte.
type socketUpstream struct {
	address  string // host and port
	requests atomic.Int32
}

// newSocketUpstream starts a provider. It reads each request, and handle writes the
// answer. A connection carries one request; it is closed when handle returns.
func newSocketUpstream(t testing.TB, handle func(c net.Conn, r *http.Request)) *socketUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &socketUpstream{address: l.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				u.requests.Add(1)
				handle(c, r)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return u
}

// writes returns a handle function that answers every request with the text.
func writes(text string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) { _, _ = io.WriteString(c, text) }
}

// newSocketGateway starts a gateway on a TCP socket. It speaks HTTP/1 and, without TLS,
// HTTP/2.
func newSocketGateway(t testing.TB, specs ...Spec) (*Gateway, *httptest.Server) {
	t.Helper()
	g, err := New(specs, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(g)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if err := g.Drain(context.Background()); err != nil {
			t.Errorf("Drain: %v", err)
		}
	})
	return g, s
}

// socketClient returns a client without retries, of HTTP/1 or of HTTP/2 without TLS.
func socketClient(t testing.TB, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// totalsOf waits until all requests of a provider are counted, and returns the counts.
func totalsOf(t testing.TB, g *Gateway, name string) (n Totals) {
	t.Helper()
	testwait.Until(t, "all requests are counted", func() bool {
		for _, s := range g.Status() {
			if s.Name == name {
				n = s.Totals
			}
		}
		return n.Requests > 0 && n.Succeeded+n.Failed+n.Canceled+n.CutShort == n.Requests
	})
	return n
}
