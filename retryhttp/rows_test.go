package retryhttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// The rows of docs/http.md that no other test covers.

// played is the result of a script: the last status, and the number of requests.
type played struct{ status, asked int }

// play sends one request to a server that answers with the script.
func play(t *testing.T, method string, script []answer, opts ...retryhttp.Option) (played, *http.Response, *rig) {
	t.Helper()
	s := newScriptedServer(t, script...)
	g := newRig(t, quick, opts...)
	resp, _ := g.send(t, request(t, method, s.URL, strings.NewReader("x")))
	return played{resp.StatusCode, s.asked()}, resp, g
}

func TestB1PermanentStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{400, 401, 402, 403, 404, 405, 413, 422, 501, 505, 511} {
			got, resp, _ := play(t, "PUT", append(statuses(code), answer{status: 200}))
			if want := (played{code, 1}); got != want {
				t.Errorf("%d: %v, want %v", code, got, want)
			}
			if _, gaveUp := retryhttp.GaveUp(resp); gaveUp != (code >= 500) {
				t.Errorf("%d: gave up %v; a refusal of the client's doing is an answer", code, gaveUp)
			}
		}
	})
}

func TestB2TransientStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{408, 500, 502, 503, 504, 529} {
			if got, _, _ := play(t, "PUT", statuses(code, code, 200)); got != (played{200, 3}) {
				t.Errorf("%d: %v, want 200 at the third attempt", code, got)
			}
		}
	})
}

func TestB3ConflictIsAnAnswerUnlessSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, _, _ := play(t, "PUT", statuses(409, 200)); got != (played{409, 1}) {
			t.Errorf("409: %v, want it at once", got)
		}
		if got, _, _ := play(t, "POST", statuses(409, 200), retryhttp.WithConflict(), retryhttp.WithAnswered()); got != (played{200, 2}) {
			t.Errorf("409 with WithConflict: %v, want a retry", got)
		}
	})
}

func TestB4MisdirectedOnceOnANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(421, 421, 200)...)
		g := newRig(t, "fixed(0s) attempts=5")
		resp, _ := g.send(t, request(t, "POST", s.URL, strings.NewReader("x")))
		wantStatus(t, resp, 421, s, 2)
		if s.connections() != 2 {
			t.Errorf("%d connections, want another one for the second attempt", s.connections())
		}
	})
}

func TestB5TooEarlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(425, 425, 200)...)
		g := newRig(t, "fixed(0s) attempts=5")
		resp, _ := g.send(t, request(t, "POST", s.URL, strings.NewReader("x")))
		wantStatus(t, resp, 425, s, 2)
	})
}

func TestB6ThrottledUnlessQuotaIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name, body string
			want       played
		}{
			{"plain", "slow down", played{200, 2}},
			{"a rate limit", `{"error":{"type":"rate_limit_error","code":"rate_limit_exceeded"}}`, played{200, 2}},
			{"the word in a message is no code", `{"error":{"message":"insufficient_quota","code":"x"}}`, played{200, 2}},
			{"OpenAI's quota", `{"error":{"code":"insufficient_quota"}}`, played{429, 1}},
			{"Anthropic's billing", `{"type":"error","error":{"type":"billing_error"}}`, played{429, 1}},
			{"a code at the top", `{"code":"insufficient_balance"}`, played{429, 1}},
		} {
			if got, _, _ := play(t, "POST", []answer{{429, "", tt.body}, {status: 200}}); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	})
}

func TestB7UnknownHostIsFinalAndOtherFailuresOfDNSAreNot(t *testing.T) {
	// A name server that really answers, on loopback: NXDOMAIN or a failure.
	for _, tt := range []struct {
		name     string
		rcode    byte
		attempts int
		reason   retry.Reason
	}{
		{"no such host", 3, 1, retry.StopPermanent},
		{"server failure", 2, 3, retry.StopAttempts},
	} {
		dns := nameServer(t, tt.rcode)
		g := newRig(t, quick)
		g.net.DialContext = (&net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "udp", dns)
		}}}).DialContext
		_, err := g.RoundTrip(request(t, "POST", "http://name.example./", strings.NewReader("x")))
		for late := new(net.DNSError); errors.As(err, &late) && late.IsTimeout; { // the resolver waits for five seconds
			_, err = g.RoundTrip(request(t, "POST", "http://name.example./", strings.NewReader("x")))
		}
		e, ok := errors.AsType[*retry.Error](err)
		if _, isDNS := errors.AsType[*net.DNSError](err); !ok || !isDNS || e.Attempts != tt.attempts || e.Reason != tt.reason {
			t.Errorf("%s: %v, want %v after %d attempts", tt.name, err, tt.reason, tt.attempts)
		}
	}
}

// nameServer starts a DNS server that answers every question with the code.
func nameServer(t *testing.T, rcode byte) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 512); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			b[2], b[3] = b[2]|0x80, rcode
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c.LocalAddr().String()
}

func TestB8WhatNoRetryCures(t *testing.T) {
	untrusted := memnet.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = quiet
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	plain := newScriptedServer(t, statuses(200)...)
	bad := func(change func(*http.Request)) *http.Request {
		req := request(t, "GET", plain.URL, nil)
		change(req)
		return req
	}
	for _, tt := range []struct {
		name string
		req  *http.Request
	}{
		{"a certificate that is not trusted", request(t, "GET", untrusted.URL, nil)},
		{"TLS to a server that has none", request(t, "GET", strings.Replace(plain.URL, "http", "https", 1), nil)},
		{"an unknown scheme", bad(func(r *http.Request) { r.URL.Scheme = "gopher" })},
		{"a header that can't be sent", bad(func(r *http.Request) { r.Header["X-Bad"] = []string{"a\nb"} })},
		{"a URL without a host", bad(func(r *http.Request) { r.URL.Host = "" })},
		{"a method that is no word", bad(func(r *http.Request) { r.Method = "G ET" })},
	} {
		g := newRig(t, quick)
		_, err := g.RoundTrip(tt.req)
		if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 1 || e.Reason != retry.StopPermanent {
			t.Errorf("%s: %v, want a permanent failure after one attempt", tt.name, err)
		}
	}
}

func TestB9RefusedAndDialTimeoutAreReplayed(t *testing.T) {
	const addr = "127.0.0.1:1" // a reserved port: nothing listens there
	g := newRig(t, quick)
	_, err := g.RoundTrip(request(t, "POST", "http://"+addr, strings.NewReader("x")))
	if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 3 {
		t.Errorf("refused: %v, want three attempts of a POST", err)
	}
	// A dial that times out in net/http itself.
	g = newRig(t, quick)
	// real clock: the time is up before the dial begins
	g.net.DialContext = (&net.Dialer{Timeout: time.Nanosecond}).DialContext
	_, err = g.RoundTrip(request(t, "POST", "http://"+addr, strings.NewReader("x")))
	if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 3 || !e.Timeout() {
		t.Errorf("dial timeout: %v, want three attempts of a POST", err)
	}
}

func TestB11ShouldRetryOverridesBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			method string
			first  answer
			want   played
		}{
			{"GET", answer{503, "X-Should-Retry: false", ""}, played{503, 1}},
			{"POST", answer{429, "X-Should-Retry: false", ""}, played{429, 1}},
			{"GET", answer{400, "X-Should-Retry: true", ""}, played{200, 2}},
			{"POST", answer{500, "X-Should-Retry: true", ""}, played{200, 2}},
			{"POST", answer{429, "X-Should-Retry: true", `{"error":{"code":"insufficient_quota"}}`}, played{200, 2}},
			{"GET", answer{503, "X-Should-Retry: perhaps", ""}, played{200, 2}},
			{"GET", answer{200, "X-Should-Retry: true", ""}, played{200, 1}},
		} {
			if got, _, _ := play(t, tt.method, []answer{tt.first, {status: 200}}); got != tt.want {
				t.Errorf("%s answered %v: %v, want %v", tt.method, tt.first, got, tt.want)
			}
		}
	})
}

func TestC4EveryFormOfAServersDelayIsWaitedFor(t *testing.T) {
	for _, tt := range []struct{ name, header, body string }{ // {…} is a layout of a time two seconds ahead
		{"milliseconds", "Retry-After-Ms: 30", ""},
		{"Azure's milliseconds", "X-Ms-Retry-After-Ms: 30", ""},
		{"decimals", "Retry-After: 0.03", ""},
		{"a duration", "Retry-After: 30ms", ""},
		{"an HTTP date", "Retry-After: {Mon, 02 Jan 2006 15:04:05 GMT}", ""},
		{"RFC 850", "Retry-After: {Monday, 02-Jan-06 15:04:05 GMT}", ""},
		{"asctime", "Retry-After: {Mon Jan _2 15:04:05 2006}", ""},
		{"RFC 3339", "Retry-After: {2006-01-02T15:04:05Z07:00}", ""},
		{"seconds since 1970", "Retry-After: {s}", ""},
		{"milliseconds since 1970", "Retry-After: {ms}", ""},
		{"RetryInfo", "", `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.03s"}]}}`},
		{"OpenAI's reset", "X-Ratelimit-Remaining-Requests: 0\nX-Ratelimit-Reset-Requests: 30ms", ""},
		{"Anthropic's reset", "Anthropic-Ratelimit-Tokens-Remaining: 0\nAnthropic-Ratelimit-Tokens-Reset: {2006-01-02T15:04:05Z07:00}", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			// A bubble begins in the year 2000, whose Unix time would be read as a delay.
			time.Sleep(time.Until(noon))
			start := time.Now()
			s := newScriptedServer(t, answer{429, inTwoSeconds(tt.header), tt.body}, answer{status: 200})
			g := newRig(t, quick)
			resp, _ := g.send(t, request(t, "GET", s.URL, nil))
			wantStatus(t, resp, 200, s, 2)
			w := g.waits()
			if len(w) != 1 || w[0] < 20*time.Millisecond || time.Since(start) != w[0] || g.events[2].By != retry.ByServer {
				t.Errorf("%s: waited %v, %v in all, set by %v", tt.name, w, time.Since(start), g.events[2].By)
			}
		})
	}
}

// inTwoSeconds replaces the layout in braces by the time in two seconds.
func inTwoSeconds(header string) string {
	before, rest, ok := strings.Cut(header, "{")
	if !ok {
		return header
	}
	layout, _, _ := strings.Cut(rest, "}")
	at := time.Now().UTC().Add(2 * time.Second)
	switch layout {
	case "s":
		return before + strconv.FormatInt(at.Unix(), 10)
	case "ms":
		return before + strconv.FormatInt(at.UnixMilli(), 10)
	}
	return before + at.Format(layout)
}

func TestC5WhatMakesNoSenseIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range []string{"-1", "NaN", "soon", "1e3", "-1s", ""} {
			s := newScriptedServer(t, answer{503, "Retry-After: " + v, ""}, answer{status: 200})
			g := newRig(t, quick)
			resp, _ := g.send(t, request(t, "GET", s.URL, nil))
			wantStatus(t, resp, 200, s, 2)
			if w := g.waits(); len(w) != 1 || w[0] != 0 {
				t.Errorf("%q: waited %v, want the policy's", v, w)
			}
		}
		past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
		s := newScriptedServer(t, answer{503, "Retry-After: " + past, ""}, answer{status: 200})
		resp, _ := newRig(t, quick).send(t, request(t, "POST", s.URL, strings.NewReader("x")))
		wantStatus(t, resp, 200, s, 2) // a delay of 0 was stated
		s = newScriptedServer(t, answer{503, "Retry-After: 10000000000", ""}, answer{status: 200})
		resp, _ = newRig(t, quick).send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 503, s, 1)
		wantReason(t, resp, retry.StopServerWait)
	})
}

func TestC6DatesAreComparedWithTheServersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A server whose clock is a year behind asks for two seconds.
		now := time.Now().UTC().AddDate(-1, 0, 0)
		h := "Date: " + now.Format(http.TimeFormat) + "\nRetry-After: " + now.Add(2*time.Second).Format(http.TimeFormat)
		s := newScriptedServer(t, answer{429, h, ""}, answer{status: 200})
		g := newRig(t, "fixed(0s) attempts=2 server-wait=3s")
		resp, _ := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 200, s, 2)
		if w := g.waits(); len(w) != 1 || w[0] < 2*time.Second {
			t.Errorf("waited %v, want at least 2s", w)
		}
	})
}

func TestA3NeverAfterAnUpgradeOrTheFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The caller handles an upgraded connection that breaks.
		var n atomic.Int32
		addr := listen(t, func(_ int, c net.Conn) {
			n.Add(1)
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			}
		})
		req := request(t, "GET", "http://"+addr, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "x")
		resp, err := newRig(t, quick).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if n.Load() != 1 {
			t.Errorf("%d connections, want one", n.Load())
		}
		// The caller also handles an answer that breaks off in the middle.
		var asked atomic.Int32
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "part")
		})
		resp, err = newRig(t, quick).RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(b) != "part" || !errors.Is(err, io.ErrUnexpectedEOF) || asked.Load() != 1 {
			t.Errorf("read %q, %v after %d requests, want the part, the error and one request", b, err, asked.Load())
		}
	})
}

func TestG16ClientGoneCancelsUpstreamAndEndsTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		gone := make(chan struct{})
		s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			<-r.Context().Done()
			close(gone)
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := newRig(t, quick).RoundTrip(requestWith(t, ctx, "GET", s.URL, nil))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("RoundTrip = %v, want the cancellation", err)
		}
		<-gone
		if asked.Load() != 1 {
			t.Errorf("%d requests, want no further attempt", asked.Load())
		}
	})
}

func TestG16ExpectContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A server that rejects the request before the 100 never gets the body; the retry sends it.
		var bodies atomic.Int32
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if bodies.Add(1) == 1 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusServiceUnavailable) // without reading: no 100
				return
			}
			b, _ := io.ReadAll(r.Body)
			_, _ = w.Write(b)
		})
		g := newRig(t, quick)
		g.net.ExpectContinueTimeout = time.Hour
		var read atomic.Int32
		body := readerFunc(func(p []byte) (int, error) {
			if read.Add(1) > 1 {
				return 0, io.EOF
			}
			return copy(p, "hello"), nil
		})
		req := request(t, "POST", s.URL, body)
		req.Header.Set("Expect", "100-continue")
		resp, text := g.send(t, req)
		if resp.StatusCode != 200 || text != "hello" || bodies.Load() != 2 {
			t.Errorf("%s %q after %d requests, want the body at the second", resp.Status, text, bodies.Load())
		}
	})
}

func TestB8CertificateOfAnotherHost(t *testing.T) {
	s := memnet.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	g := newRig(t, quick)
	g.net.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	g.net.TLSClientConfig.ServerName = "another-host.test"
	_, err := g.RoundTrip(request(t, "GET", s.URL, nil))
	if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 1 || !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Errorf("RoundTrip = %v, want the certificate's error after one attempt", err)
	}
}
