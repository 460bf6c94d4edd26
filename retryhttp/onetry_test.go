package retryhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/internal/h2test"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// newH2Rig returns a rig over HTTP/2 without TLS, on real sockets.
func newH2Rig(t *testing.T, policy string) *rig {
	t.Helper()
	g := newRig(t, policy)
	g.net.DialContext = nil
	g.net.Protocols.SetHTTP1(false)
	g.net.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(g.net.CloseIdleConnections)
	return g
}

// TestG16OneRequestOnTheWireIsOneAttempt has a server that fails in the ways of HTTP/2. The server
// gets a request as often as the policy has attempts, and a POST only if the server has
// not processed it before.
func TestG16OneRequestOnTheWireIsOneAttempt(t *testing.T) {
	reset := func(code uint32) func(h2test.Stream) bool {
		return func(s h2test.Stream) bool { s.Reset(code); return true }
	}
	goAway := func(code uint32) func(h2test.Stream) bool {
		return func(s h2test.Stream) bool { s.GoAway(0, code); return true }
	}
	for _, tt := range []struct {
		name  string
		fail  func(s h2test.Stream) bool // called for each request
		fails int                        // number of requests that fail; then the server answers
		post  bool                       // the server has not processed a failed request, so a POST is repeated
		extra int                        // requests that the transport may repeat by itself
	}{
		{"it refuses all streams", reset(h2test.RefusedStream), 100, true, 0},
		{"it refuses one stream", reset(h2test.RefusedStream), 1, true, 0},
		{"it refuses two streams", reset(h2test.RefusedStream), 2, true, 0},
		// After the first attempt, net/http takes the next connection for one that was used.
		{"it closes each connection at its first request", goAway(h2test.NoError), 100, true, 2},
		{"it closes each connection at its first request, with an error", goAway(h2test.EnhanceYourCalm), 100, true, 0},
		{"it resets all streams to slow the client down", reset(h2test.EnhanceYourCalm), 100, false, 0},
		{"it resets all streams after an error of its own", reset(h2test.InternalError), 100, false, 0},
		{"it breaks all connections", func(h2test.Stream) bool { return false }, 100, false, 0},
		{"it may have processed the request", func(s h2test.Stream) bool { s.GoAway(s.ID, h2test.NoError); return false }, 100, false, 0},
	} {
		for _, policy := range []string{quick, quick + " attempt-timeout=1h total-timeout=2h"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				t.Run(tt.name+"/"+method+"/"+policy, func(t *testing.T) {
					var hits atomic.Int32
					addr := h2test.Serve(t, nil, func(s h2test.Stream) bool {
						if int(hits.Add(1)) <= tt.fails {
							return tt.fail(s)
						}
						s.OK()
						return true
					})
					var body io.Reader
					if method == http.MethodPost {
						body = track(strings.NewReader("hello"))
					}
					want, repeated := min(tt.fails+1, 3), method == http.MethodGet || tt.post
					if !repeated {
						want = 1
					}
					resp, err := newH2Rig(t, policy).RoundTrip(request(t, method, "http://"+addr, body))
					if n := int(hits.Load()); n < want || n > want+tt.extra || (err == nil) != (tt.fails < 3) {
						t.Errorf("RoundTrip = %v, and the server got %d requests; want %d", err, n, want)
					}
					if err == nil {
						_ = resp.Body.Close()
					} else if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != want {
						t.Errorf("RoundTrip = %v, want a failure after %d attempts", err, want)
					}
					if errors.Is(err, retryhttp.ErrNotIdempotent) == repeated {
						t.Errorf("RoundTrip = %v", err)
					}
				})
			}
		}
	}
}

// A server that closes a connection gracefully has not failed: the request goes to a new
// connection, within the same attempt.
func TestAGracefulGoAwayCostsNoAttempt(t *testing.T) {
	conns := make(chan int, 10)
	addr := h2test.Serve(t, nil, func(s h2test.Stream) bool {
		if conns <- s.Conn; s.ID == 3 {
			s.GoAway(1, h2test.NoError)
			return true
		}
		s.OK()
		return true
	})
	g := newH2Rig(t, "fixed(0s) attempts=1")
	for range 2 {
		if resp, _ := g.send(t, request(t, "POST", "http://"+addr, strings.NewReader("hello"))); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
	if a, b, c := <-conns, <-conns, <-conns; a != 1 || b != 1 || c == 1 || len(conns) != 0 {
		t.Errorf("requests on connections %d, %d, %d and %d more; want 1, 1 and a new one", a, b, c, len(conns))
	}
}

// With TLS, the transport tries HTTP/2 in another way than without.
func TestARefusedStreamIsAnAttemptWithTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler()) // for its certificate
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	var hits atomic.Int32
	addr := h2test.Serve(t, s.TLS, func(s h2test.Stream) bool {
		hits.Add(1)
		s.Reset(h2test.RefusedStream)
		return true
	})
	g := newRigOver(t, quick, s.Client().Transport)
	for _, want := range []int32{3, 6} { // on a new connection, and on one that was used
		_, err := g.RoundTrip(request(t, "POST", "https://"+addr, strings.NewReader("hello")))
		if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 3 || hits.Load() != want {
			t.Errorf("RoundTrip = %v after %d requests, want 3 attempts and %d requests", err, hits.Load(), want)
		}
	}
}
