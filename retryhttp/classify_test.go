package retryhttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestB1PermanentStatusesAreAskedOnce(t *testing.T) {
	for _, code := range []int{400, 401, 402, 403, 404, 405, 413, 422, 501, 505, 511, 520} {
		s := newSite(t, statuses(code)...)
		g := newRig(t, quick)
		resp, body := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, code, s, 1)
		if want := fmt.Sprintf("body of %d", code); body != want {
			t.Errorf("body %q, want %q", body, want)
		}
		if _, failed := retryhttp.GaveUp(resp); failed != (code >= 500) || g.count(retry.GaveUp) > 0 != (code >= 500) {
			t.Errorf("%d: GaveUp = %v, want it for failures of the server", code, failed)
		}
		if e := retryhttp.Check(resp); retry.OutcomeOf(e).Class != retry.ClassPermanent {
			t.Errorf("Check(%d) = %v, want a permanent failure", code, e)
		}
	}
}

func TestB2TransientStatusesAreRetried(t *testing.T) {
	for _, code := range []int{408, 500, 502, 503, 504, 529} {
		s := newSite(t, statuses(code)...)
		g := newRig(t, quick)
		resp, body := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, code, s, 3)
		if want := fmt.Sprintf("body of %d", code); body != want {
			t.Errorf("body %q, want %q", body, want)
		}
		e := wantReason(t, resp, retry.StopAttempts)
		if st, ok := errors.AsType[*retryhttp.StatusError](e); !ok || st.Code != code || e.Attempts != 3 {
			t.Errorf("GaveUp = %v, want a *StatusError of %d after 3 attempts", e, code)
		}
		if e := retryhttp.Check(resp); retry.OutcomeOf(e).Class != retry.ClassTransient {
			t.Errorf("Check(%d) = %v, want a transient failure", code, e)
		}
	}
}

func TestB3ConflictIsAnAnswerUnlessDeclared(t *testing.T) {
	for _, tt := range []struct {
		method string
		opts   []retryhttp.Option
		asked  int
	}{
		{"PUT", nil, 1},
		{"PUT", []retryhttp.Option{retryhttp.WithConflict()}, 2},
		{"POST", []retryhttp.Option{retryhttp.WithConflict()}, 1},
		{"POST", []retryhttp.Option{retryhttp.WithConflict(), retryhttp.WithAnswered()}, 2},
	} {
		s := newSite(t, statuses(409, 200)...)
		g := newRig(t, quick, tt.opts...)
		if g.send(t, request(t, tt.method, s.URL, nil)); s.asked() != tt.asked {
			t.Errorf("%s with %d options: asked %d times, want %d", tt.method, len(tt.opts), s.asked(), tt.asked)
		}
	}
}

func TestB4MisdirectedOnceOnANewConnection(t *testing.T) {
	for _, body := range []string{"", "wrong place"} {
		s := newSite(t, answer{status: 200}, answer{421, "", body}, answer{421, "", body})
		g := newRig(t, "fixed(0s) attempts=5")
		g.send(t, request(t, "GET", s.URL, nil)) // leaves an idle connection
		resp, text := g.send(t, request(t, "POST", s.URL, nil))
		wantStatus(t, resp, 421, s, 3)
		wantReason(t, resp, retry.StopPermanent)
		if s.connections() != 2 || text != body {
			t.Errorf("%d connections and body %q, want 2 and %q", s.connections(), text, body)
		}
	}
}

func TestB5TooEarlyOnce(t *testing.T) {
	s := newSite(t, statuses(425)...)
	resp, _ := newRig(t, "fixed(0s) attempts=5").send(t, request(t, "GET", s.URL, nil))
	wantStatus(t, resp, 425, s, 2)
	wantReason(t, resp, retry.StopPermanent)
}

func TestB6QuotaIsPermanentByCodeNotByWord(t *testing.T) {
	for _, tt := range []struct {
		name, header, body string
		asked              int
	}{
		{"code", "", `{"error":{"message":"no","type":"x","code":"insufficient_quota"}}`, 1},
		{"type", "", `{"error":{"type":"insufficient_quota","code":null}}`, 1},
		{"at the top", "", `{"type":"billing_hard_limit_reached"}`, 1},
		{"bare", "", `{"error":"insufficient_quota"}`, 1},
		{"words", "", `{"error":{"message":"insufficient_quota","code":"rate_limit_exceeded"}}`, 3},
		{"number", "", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, 3},
		{"no JSON", "", "insufficient_quota", 3},
		{"empty", "", "", 3},
		{"overridden", "x-should-retry: true", `{"error":{"code":"insufficient_quota"}}`, 3},
	} {
		s := newSite(t, answer{429, tt.header, tt.body})
		resp, body := newRig(t, quick).send(t, request(t, "POST", s.URL, nil))
		if s.asked() != tt.asked || body != tt.body {
			t.Errorf("%s: asked %d times, body %q, want %d and the body whole", tt.name, s.asked(), body, tt.asked)
		}
		if tt.asked == 1 {
			e := wantReason(t, resp, retry.StopPermanent)
			if st, ok := errors.AsType[*retryhttp.StatusError](e); !ok || st.Quota == "" {
				t.Errorf("%s: %v, want a *StatusError with the code", tt.name, e)
			}
		}
	}
}

func TestB6PeekIsBoundedInBytesAndTime(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	s := newSite(t, answer{429, "", long})
	if _, body := newRig(t, quick).send(t, request(t, "GET", s.URL, nil)); body != long {
		t.Errorf("a long body came back with %d bytes, want %d", len(body), len(long))
	}

	var n atomic.Int32
	stall := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(429)
		_, _ = io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		if n.Add(1) < 3 {
			<-r.Context().Done() // until the client closes the body
			return
		}
		<-stall
		_, _ = io.WriteString(w, "b")
	}))
	t.Cleanup(slow.Close)
	g := newRig(t, quick)
	start := time.Now()
	resp, err := g.RoundTrip(request(t, "GET", slow.URL, nil))
	if took := time.Since(start); err != nil || took < 150*time.Millisecond || took > 5*time.Second {
		t.Fatalf("RoundTrip = %v after %v, want three peeks of 50ms", err, took)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, first); err != nil || first[0] != 'a' {
		t.Errorf("first byte %q, %v", first, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { close(stall) })
	if rest := read(t, resp); rest != "b" {
		t.Errorf("the rest is %q, want b", rest)
	}
	if _, err := resp.Body.Read(first); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("Read after Close = %v", err)
	}
}

func TestB7UnknownHostIsPermanent(t *testing.T) {
	for _, tt := range []struct {
		err  *net.DNSError
		want int32
	}{
		{&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, 1},
		{&net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true}, 3},
		{&net.DNSError{Err: "timeout", Name: "x", IsTimeout: true}, 3},
	} {
		g := newRig(t, quick)
		var n atomic.Int32
		g.net.DialContext = func(context.Context, string, string) (net.Conn, error) {
			n.Add(1)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: tt.err}
		}
		_, err := g.RoundTrip(request(t, "POST", "http://x.invalid", nil))
		if got, ok := errors.AsType[*net.DNSError](err); n.Load() != tt.want || !ok || got != tt.err {
			t.Errorf("%v: dialed %d times, %v, want %d", tt.err, n.Load(), err, tt.want)
		}
	}
}

func TestB8CertificatesSchemesAndHeadersArePermanent(t *testing.T) {
	var hits atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = quiet
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			hits.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	plain := newSite(t, statuses(200)...)
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, tt := range []struct {
		name string
		url  string
		edit func(*rig, *http.Request)
	}{
		{"unknown authority", s.URL, nil},
		{"wrong host", s.URL, func(g *rig, _ *http.Request) {
			g.net.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "elsewhere.invalid"}
		}},
		{"plain HTTP", strings.Replace(plain.URL, "http:", "https:", 1), nil},
		{"scheme", "gopher://x.invalid", nil},
		{"no host", "http:///x", nil},
		{"header name", plain.URL, func(_ *rig, r *http.Request) { r.Header["Bad Name"] = []string{"x"} }},
		{"header value", plain.URL, func(_ *rig, r *http.Request) { r.Header.Set("X-Bad", "a\nb") }},
		{"method", plain.URL, func(_ *rig, r *http.Request) { r.Method = "GE T" }},
		{"no URL", plain.URL, func(_ *rig, r *http.Request) { r.URL = nil }},
	} {
		hits.Store(0)
		g := newRig(t, quick, retryhttp.WithIdempotent(func(*http.Request) bool { return true }))
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		req := (&http.Request{Method: "GET", URL: u, Header: http.Header{}}).WithContext(t.Context())
		if tt.edit != nil {
			tt.edit(g, req)
		}
		resp, err := g.RoundTrip(req)
		if resp != nil || !errors.Is(err, retry.StopPermanent) || g.count(retry.Waiting) != 0 || hits.Load() > 1 {
			t.Errorf("%s: %v after %d retries, want a permanent failure", tt.name, err, g.count(retry.Waiting))
		}
	}
}

// quiet keeps what servers say about bad handshakes out of the output.
var quiet = log.New(io.Discard, "", 0)

func TestB9RefusedAndResetAreTransient(t *testing.T) {
	g := newRig(t, quick)
	_, err := g.RoundTrip(request(t, "POST", "http://127.0.0.1:1", strings.NewReader("x")))
	if !errors.Is(err, retry.StopAttempts) || g.count(retry.Waiting) != 2 {
		t.Errorf("refused: %v after %d retries, want 2", err, g.count(retry.Waiting))
	}

	addr := listen(t, func(n int, c net.Conn) {
		if n < 2 {
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
			return
		}
		_, _ = io.ReadAtLeast(c, make([]byte, 4096), 20)
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	if resp, _ := newRig(t, quick).send(t, request(t, "GET", "http://"+addr, nil)); resp.StatusCode != 204 {
		t.Errorf("after two resets: %s, want 204", resp.Status)
	}
}

func TestB11ShouldRetryOverridesBothWays(t *testing.T) {
	for _, tt := range []struct {
		method string
		status int
		header string
		asked  int
	}{
		{"GET", 503, "false", 1},
		{"GET", 429, "false", 1},
		{"GET", 400, "true", 2},
		{"POST", 400, "true", 2},
		{"POST", 500, "true", 2},
		{"GET", 404, "false", 1},
		{"GET", 404, "maybe", 1},
		{"GET", 503, "maybe", 2},
		{"GET", 200, "true", 1},
	} {
		s := newSite(t, answer{tt.status, "x-should-retry: " + tt.header, ""}, answer{status: 200})
		g := newRig(t, quick)
		if g.send(t, request(t, tt.method, s.URL, nil)); s.asked() != tt.asked {
			t.Errorf("%s answered %d with %s: asked %d times, want %d", tt.method, tt.status, tt.header, s.asked(), tt.asked)
		}
	}
}

// h2StreamError has the method with which net/http lets its error be seen.
type h2StreamError uint32

func (h2StreamError) Error() string { return "stream error" }

// As fills in the target like net/http, which looks at its fields.
func (e h2StreamError) As(target any) bool { return retryhttp.SetStreamError(target, uint32(e)) }

func TestA1ErrorsOfTransports(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		sent int
	}{
		{"refused stream", h2StreamError(7), 3},
		{"canceled stream", h2StreamError(8), 1},
		{"dial", &net.OpError{Op: "dial", Err: errors.New("x")}, 3},
		{"proxy", &net.OpError{Op: "proxyconnect", Err: errors.New("x")}, 3},
		{"read", &net.OpError{Op: "read", Err: errors.New("x")}, 1},
		{"unknown", errors.New("x"), 1},
		{"its own word", retry.Permanent(&net.OpError{Op: "dial", Err: errors.New("x")}), 1},
	} {
		n := 0
		p, _ := retry.Parse(quick)
		tr, err := retryhttp.New(p, roundTripper(func(*http.Request) (*http.Response, error) { n++; return nil, tt.err }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.RoundTrip(request(t, "POST", "http://x.invalid", nil)); n != tt.sent || !errors.Is(err, tt.err) {
			t.Errorf("%s: sent %d times, %v, want %d", tt.name, n, err, tt.sent)
		}
	}
}

func TestStatusErrorText(t *testing.T) {
	e := &retryhttp.StatusError{Code: 503, After: 2 * time.Second, NotRetried: retryhttp.ErrBody}
	want := "status 503 Service Unavailable, asks to wait 2s: not retried: the request's body can't be sent again"
	if got := e.Error(); got != want || !errors.Is(e, retryhttp.ErrBody) {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got := (&retryhttp.StatusError{Code: 529}).Error(); got != "status 529" {
		t.Errorf("Error() = %q", got)
	}
}
