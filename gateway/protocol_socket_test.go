package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// newH2CUpstream starts a server that supports only HTTP/2 without TLS.
func newH2CUpstream(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// A gRPC call has messages in both directions, trailers of the caller, and its status in
// trailers that are not announced.
func TestGRPCPassesToAnUpstreamWithoutTLS(t *testing.T) {
	asked := make(chan *http.Request, 1)
	u := newH2CUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		_ = http.NewResponseController(w).Flush()
		first := make([]byte, 5)
		_, _ = io.ReadFull(r.Body, first)
		_, _ = w.Write(append([]byte("echo "), first...)) // before the caller has sent everything
		_ = http.NewResponseController(w).Flush()
		rest, _ := io.ReadAll(r.Body)
		_, _ = w.Write(rest)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
		asked <- r
	})
	_, s := newSocketGateway(t, spec(t, "it", Generic, u.URL, func(s *Spec) { s.H2C = true }))
	body, in := io.Pipe()
	req, err := http.NewRequestWithContext(testwait.Context(t), http.MethodPost, s.URL+"/p/it/pkg.Service/Method", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Trailer = http.Header{"X-Caller": nil}
	go func() { _, _ = io.WriteString(in, "hello") }()
	resp, err := socketClient(t, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	echo := make([]byte, 10)
	if _, err := io.ReadFull(resp.Body, echo); err != nil || string(echo) != "echo hello" {
		t.Fatalf("read %q, %v before the caller was done", echo, err)
	}
	_, _ = io.WriteString(in, "world")
	req.Trailer.Set("X-Caller", "done")
	_ = in.Close()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(rest) != "world" || resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "fine" {
		t.Errorf("read %q, %v, trailers %v", rest, err, resp.Trailer)
	}
	got := testwait.Receive(t, "the request", asked)
	if got.Proto != "HTTP/2.0" || got.URL.Path != "/pkg.Service/Method" || got.Header.Get("Te") != "trailers" || got.Trailer.Get("X-Caller") != "done" {
		t.Errorf("the provider saw %s %s, TE %q, trailers %v", got.Proto, got.URL, got.Header.Get("Te"), got.Trailer)
	}
}

// Trailers of an HTTP/1 caller arrive, too.
func TestRequestTrailersArrive(t *testing.T) {
	asked := make(chan http.Header, 1)
	u := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- r.Trailer
	}))
	t.Cleanup(u.Close)
	_, s := newSocketGateway(t, spec(t, "it", Generic, u.URL))
	for _, tt := range []struct {
		trailer http.Header
		want    string // value of X-Sum at the provider
	}{
		{http.Header{"X-Sum": {"42"}}, "42"},
		{http.Header{"X-Sum": {"42"}, "X-Api-Key": {"of-the-caller"}}, "42"}, // the gateway has a key of its own
		{http.Header{"X-Api-Key": {"of-the-caller"}}, ""},
	} {
		req, err := http.NewRequest(http.MethodPost, s.URL+"/p/it/x", io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = tt.trailer
		resp, err := socketClient(t, false).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := testwait.Receive(t, "the trailers", asked); got.Get("X-Sum") != tt.want || got.Get("X-Api-Key") != "" {
			t.Errorf("the provider saw the trailers %v, want X-Sum: %s", got, tt.want)
		}
	}
}

// A retry and a fallback get the trailers that they may get.
func TestRequestTrailersArriveAtEveryAttempt(t *testing.T) {
	asked := make(chan http.Header, 10)
	newServer := func(failures int) string {
		u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			asked <- r.Trailer
			if failures--; failures >= 0 {
				w.WriteHeader(http.StatusBadGateway)
			}
		}))
		t.Cleanup(u.Close)
		return u.URL
	}
	_, s := newSocketGateway(t, spec(t, "it", Generic, newServer(100), withPolicy(t, "fixed(1ms) attempts=4"), fallback("other")), spec(t, "other", Generic, newServer(0)))
	req, err := http.NewRequest(http.MethodPut, s.URL+"/p/it/x", io.MultiReader(strings.NewReader("body")))
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"X-Sum": {"42"}, "Content-Digest": {"sha-256=:x:"}, "X-Api-Key": {"of-the-caller"}}
	resp, err := socketClient(t, false).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n := len(asked); resp.StatusCode != 200 || n < 3 {
		t.Fatalf("%s after %d requests, want 200 after a retry and a fallback", resp.Status, n)
	}
	for n := len(asked); n > 0; n-- {
		got, sum := <-asked, "42"
		if n == 1 { // the fallback
			sum = ""
		}
		if got.Get("X-Sum") != sum || got.Get("Content-Digest") != "sha-256=:x:" || got.Get("X-Api-Key") != "" {
			t.Errorf("%d requests before the last, the provider saw the trailers %v", n-1, got)
		}
	}
}

// The gateway opens no tunnel, and a TRACE would show the caller the key of the provider.
func TestMethodsThatAreNotForwarded(t *testing.T) {
	u := newSocketUpstream(t, writes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	g, s := newSocketGateway(t, spec(t, "it", Generic, "http://"+u.address))
	for _, method := range []string{http.MethodConnect, http.MethodTrace} {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s /p/it/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method)
		text, _ := io.ReadAll(c)
		_ = c.Close()
		if !strings.HasPrefix(string(text), "HTTP/1.1 501 ") || !strings.Contains(string(text), codeMethod) {
			t.Errorf("%s: got %q, want 501", method, text)
		}
		req, err := http.NewRequest(method, "/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.RoundTripper("it").RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || retry.OutcomeOf(err).Class != retry.ClassPermanent {
			t.Errorf("%s in this process: %v, %v; want a permanent failure", method, resp, err)
		}
	}
	if n := u.requests.Load(); n != 0 {
		t.Errorf("the provider got %d requests", n)
	}
}

// The headers of a response are limited, with HTTP/1 and with HTTP/2.
func TestHeadersOfAResponseAreLimited(t *testing.T) {
	var size, requests atomic.Int32
	handle := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		for i := range size.Load() {
			w.Header().Set(fmt.Sprintf("X-Padding-%d", i), strings.Repeat("x", 64<<10))
		}
	})
	h1 := httptest.NewServer(handle)
	t.Cleanup(h1.Close)
	untimed := withPolicy(t, "fixed(1ms) attempts=4")
	_, s := newSocketGateway(t, spec(t, "h1", Generic, h1.URL, untimed), spec(t, "h2", Generic, newH2CUpstream(t, handle).URL, untimed, func(s *Spec) { s.H2C = true }))
	for _, name := range []string{"h1", "h2"} {
		for _, tt := range []struct {
			size int32 // in units of 64 KiB
			want int
		}{{14, 200}, {40, 502}, {14, 200}} {
			size.Store(tt.size)
			requests.Store(0)
			resp, err := socketClient(t, false).Get(s.URL + "/p/" + name + "/x")
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			clear := tt.want == 200 || requests.Load() == 1 && strings.Contains(string(text), codeLongHead)
			if resp.StatusCode != tt.want || !clear && name == "h1" { // net/http ends the connection of HTTP/2 with PROTOCOL_ERROR
				t.Errorf("%s, headers of %d KiB: %s %s after %d requests, want %d after one", name, tt.size*64, resp.Status, text, requests.Load(), tt.want)
			}
		}
	}
}

// A Location with a URL of the provider is rewritten to lead through the gateway.
func TestALocationLeadsThroughTheGateway(t *testing.T) {
	for _, tt := range []struct{ location, want string }{
		{"/base/v1/jobs/1?a=b%2Fc#d", "/p/it/v1/jobs/1?a=b%2Fc#d"},
		{"/base", "/p/it"},
		{"/elsewhere", "/elsewhere"}, // not below the base URL
		{"/basement", "/basement"},
		{"jobs/1", "jobs/1"},
		{"?page=2", "?page=2"},
		{"http://UP/base/v1/jobs/1", "/p/it/v1/jobs/1"},
		{"//UP/base/v1", "/p/it/v1"},
		{"https://UP/base/v1", "https://UP/base/v1"},
		{"https://other.example/base/v1", "https://other.example/base/v1"},
	} {
		t.Run(tt.location, func(t *testing.T) {
			t.Parallel()
			var address string
			u := newSocketUpstream(t, func(c net.Conn, _ *http.Request) {
				fmt.Fprintf(c, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", strings.ReplaceAll(tt.location, "UP", address))
			})
			address = u.address
			_, s := newSocketGateway(t, spec(t, "it", Generic, "http://"+u.address+"/base"))
			client := socketClient(t, false)
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			resp, err := client.Get(s.URL + "/p/it/v1/start")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if got, want := resp.Header.Get("Location"), strings.ReplaceAll(tt.want, "UP", address); got != want {
				t.Errorf("Location: %s, want %s", got, want)
			}
		})
	}
}

// A client that knows only the gateway can follow a redirect within a provider.
func TestARelativeRedirectIsFollowed(t *testing.T) {
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/old" {
			http.Redirect(w, r, "/v1/new", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, r.URL.Path)
	}))
	t.Cleanup(u.Close)
	_, s := newSocketGateway(t, spec(t, "it", Generic, u.URL))
	resp, err := socketClient(t, false).Get(s.URL + "/p/it/v1/old")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "/v1/new" || err != nil {
		t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
	}
}

// Requests with ambiguous framing are rejected, or reach the provider in an unambiguous
// form.
func TestAmbiguousFramingDoesNotReachAProvider(t *testing.T) {
	const head = "POST /p/it/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
	for _, tt := range []struct{ name, request string }{
		{"Content-Length and Transfer-Encoding", head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"},
		{"two Content-Length", head + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody!"},
		{"a Content-Length with a sign", head + "Content-Length: +4\r\n\r\nbody"},
		{"an unknown Transfer-Encoding", head + "Transfer-Encoding: xchunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"},
		{"two Transfer-Encoding", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n4\r\nbody\r\n0\r\n\r\n"},
		{"a folded header", head + "X-Folded: a\r\n b\r\nContent-Length: 4\r\n\r\nbody"},
		{"a folded Transfer-Encoding", head + "Transfer-Encoding:\r\n chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"},
		{"a space before the colon", head + "Content-Length : 4\r\n\r\nbody"},
		{"lines that end in LF", strings.ReplaceAll(head, "\r\n", "\n") + "Content-Length: 4\n\nbody"},
		{"a bare CR in a value", head + "X-Bare: a\rTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nbody"},
		{"chunks that end in LF", head + "Transfer-Encoding: chunked\r\n\r\n4\nbody\n0\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			raw := make(chan string, 1)
			u := newRawUpstream(t, raw)
			_, s := newSocketGateway(t, spec(t, "it", Generic, "http://"+u, withPolicy(t, "fixed(1ms) attempts=1 attempt-timeout=1m")))
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, tt.request); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode >= http.StatusBadRequest {
				return // rejected by the gateway: the provider answers everything with 200
			}
			got := testwait.Receive(t, "the request as the provider sees it", raw)
			headers, _, _ := strings.Cut(got, "\r\n\r\n")
			lower := strings.ToLower(headers)
			length, chunked := strings.Count(lower, "\r\ncontent-length:"), strings.Count(lower, "\r\ntransfer-encoding:")
			switch {
			case length+chunked != 1:
				t.Errorf("%d Content-Length and %d Transfer-Encoding reached the provider:\n%q", length, chunked, got)
			case strings.Contains(headers, "\r\n ") || strings.Contains(headers, "\r\n\t"):
				t.Errorf("a folded header reached the provider:\n%q", got)
			case strings.Count(got, "\n") != strings.Count(got, "\r\n") || strings.Count(got, "\r") != strings.Count(got, "\r\n"):
				t.Errorf("a line that does not end in CR LF reached the provider:\n%q", got)
			}
		})
	}
}

// newRawUpstream starts a provider that answers each request, and sends the bytes of the
// request to the channel. It returns the address.
func newRawUpstream(t testing.TB, raw chan<- string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var seen strings.Builder
				r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &seen)))
				if err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				raw <- seen.String()
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}()
		}
	}()
	return l.Addr().String()
}
