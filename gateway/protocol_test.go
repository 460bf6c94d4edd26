package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retryhttp"
)

// The gateway adds no Content-Type to an answer without one.
func TestNoContentTypeIsInvented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if w.Header()["Content-Type"] = nil; r.URL.Path == "/typed" {
				w.Header().Set("Content-Type", "text/x-own")
			}
			fmt.Fprint(w, `{"a":1}`)
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		if got := r.get("/p/it/plain"); got.code != 200 || got.header["Content-Type"] != nil {
			t.Errorf("got %d, Content-Type %q, want none", got.code, got.header["Content-Type"])
		}
		if got := r.get("/p/it/typed"); fmt.Sprint(got.header["Content-Type"]) != "[text/x-own]" {
			t.Errorf("Content-Type %q, want the provider's", got.header["Content-Type"])
		}
		if got := r.get("/p/unknown/x"); got.header.Get("Content-Type") != "application/json" {
			t.Errorf("our own: %v", got.header)
		}
	})
}

func TestG16HTTP2AndTrailersPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := unstartedTestServer(func(_ int, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			fmt.Fprintf(w, "over %s", r.Proto)
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
		})
		u.EnableHTTP2 = true
		u.StartTLS()
		t.Cleanup(u.Close)
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		roots := x509.NewCertPool()
		roots.AddCert(u.Certificate())
		r.base.TLSClientConfig = &tls.Config{RootCAs: roots}
		resp, err := r.Client().Get(r.URL + "/p/it/x")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || string(text) != "over HTTP/2.0" {
			t.Errorf("got %q, %v", text, err)
		}
		if resp.Trailer.Get("X-Sum") != "42" || resp.Trailer.Get("X-Late") != "yes" {
			t.Errorf("trailers: %v", resp.Trailer)
		}
	})
}

func TestACertificateOfAnotherFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := unstartedTestServer(says("main"))
		u.StartTLS()
		t.Cleanup(u.Close)
		spare := newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL), spec(t, "alone", Anthropic, u.URL),
		})
		if got := r.ask(http.MethodPost, "/p/main/x", chat); got.body != "the spare" {
			t.Errorf("got %d %q", got.code, got.body)
		}
		got := r.ask(http.MethodPost, "/p/alone/x", chat)
		if got.code != 502 || got.errorCode(t) != codeUnreachable || got.header.Get(shouldRetry) != "false" {
			t.Errorf("got %d %q", got.code, got.body)
		}
	})
}

func TestG16UpgradePassesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			line, _ := rw.ReadString('\n')
			fmt.Fprintf(conn, "echo %s", line)
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		conn, err := memnet.Dial(t.Context(), "tcp", r.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /p/it/socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("got %v, %v", resp, err)
		}
		fmt.Fprint(conn, "hello\n")
		if line, err := in.ReadString('\n'); line != "echo hello\n" {
			t.Errorf("got %q, %v", line, err)
		}
		_ = conn.Close()
		eventually(t, "the connection is given back", func() bool { return r.status("it").InFlight == 0 })
		if n := r.settled("it").Totals; n.CutShort != 0 {
			t.Errorf("totals: %+v", n)
		}
	})
}

func TestUploads(t *testing.T) {
	ofUnknownLength := func(r *rig, n int) *http.Request {
		body := strings.NewReader(strings.Repeat("0123456789abcdef", n/16))
		req, err := http.NewRequest(http.MethodPost, r.URL+"/p/it/files", io.MultiReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	limited := func(s *Spec) { s.MaxBody = 128 << 10 }
	t.Run("of unknown length, twice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := newTestServer(t, shaky(1, 503))
			r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, limited)})
			if got := r.do(ofUnknownLength(r, 100<<10)); got.body != "done" || u.count() != 2 {
				t.Errorf("got %d %q, %v after %d requests", got.code, got.body, got.err, u.count())
			}
			for i, s := range u.requests() {
				if s.body != strings.Repeat("0123456789abcdef", 100<<10/16) {
					t.Errorf("attempt %d had %d bytes", i+1, len(s.body))
				}
			}
		})
	})
	t.Run("longer than allowed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := newTestServer(t, says("done"))
			r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, limited)})
			got := r.ask(http.MethodPost, "/p/it/files", strings.Repeat("x", 200<<10))
			if got.code != 413 || got.errorCode(t) != codeTooLarge || u.count() != 0 {
				t.Errorf("got %d %q, %v after %d requests", got.code, got.body, got.err, u.count())
			}
			if st := r.settled("it"); st.Breaker != "closed" || st.Totals.Failed != 1 {
				t.Errorf("%+v", st)
			}
		})
	})
	t.Run("longer than allowed, of unknown length", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := newTestServer(t, says("done"))
			r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, limited)})
			got := r.do(ofUnknownLength(r, 200<<10))
			if got.code != 413 || got.errorCode(t) != codeTooLarge {
				t.Errorf("got %d %q, %v", got.code, got.body, got.err)
			}
			if st := r.settled("it"); st.Breaker != "closed" || st.Totals.Failed != 1 {
				t.Errorf("%+v", st)
			}
		})
	})
	t.Run("too long to be kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
				_, _ = io.CopyN(io.Discard, r.Body, 64<<10) // the beginning was read, and is not stored
				fails(503)(n, w, r)
			})
			r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL)})
			req := ofUnknownLength(r, 17<<20)
			req.ContentLength = 17 << 20
			req.Header.Set("X-Test-Stream", "yes") // the handler reads the body
			if got := r.do(req); got.code != 503 || u.count() != 1 {
				t.Errorf("got %d after %d requests, want the 503 after one", got.code, u.count())
			}
			if n := r.settled("it").Totals; n.NotKept != 1 {
				t.Errorf("totals: %+v", n)
			}
		})
	})
}

func TestG16ACallerThatGoesAwayTakesTheRequestAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		u := newTestServer(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(gone)
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/p/it/x", nil)
		go func() {
			eventually(t, "it is under way", func() bool { return u.count() == 1 })
			cancel()
		}()
		if got := r.do(req); got.err == nil {
			t.Fatalf("got %d", got.code)
		}
		<-gone
		eventually(t, "it is counted", func() bool { return r.status("it").Totals.Canceled == 1 })
		st := r.status("it")
		counts := r.table.Load().providers["it"].upstream.gate.breaker.Counts()
		if st.Totals.Failed != 0 || counts.Failures != 0 || st.InFlight != 0 || u.count() != 1 {
			t.Errorf("%+v, %+v", st, counts)
		}
	})
}

// rotated is an encoding for which only Options.Decoders has a decoder: it flips the highest bit of each byte.
type rotated struct{ io.Writer }

func (r rotated) Write(p []byte) (int, error) { return r.Writer.Write(rotate(p)) }

func (rotated) Close() error { return nil }

func rotate(p []byte) []byte {
	p = bytes.Clone(p)
	for i := range p {
		p[i] ^= 0x80
	}
	return p
}

func rotatedReader(r io.Reader) (io.Reader, error) {
	text, err := io.ReadAll(r)
	return bytes.NewReader(rotate(text)), err
}

// A provider whose quota is gone says so in the body of its response, in an encoding that
// the caller accepts. The gateway decodes it.
func TestEncodedFailuresAreUnderstood(t *testing.T) {
	const gone = `{"error":{"code":"insufficient_quota"}}`
	encode := map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"rot":  func(w io.Writer) io.WriteCloser { return rotated{w} },
	}
	for encoding, writer := range encode {
		t.Run(encoding, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Encoding", encoding)
					w.WriteHeader(http.StatusTooManyRequests)
					c := writer(w)
					fmt.Fprint(c, gone)
					_ = c.Close()
				})
				r := newRig(t, []Spec{spec(t, "it", OpenAI, u.URL)}, func(o *Options) {
					o.Decoders = map[string]retryhttp.Decoder{"rot": rotatedReader}
				})
				got := r.ask(http.MethodPost, "/p/it/v1/chat/completions", chat, "Accept-Encoding", encoding)
				if got.code != 429 || got.header.Get("Content-Encoding") != encoding || got.body == gone || u.count() != 1 {
					t.Errorf("got %d, %s, after %d requests, want the encoded answer after one", got.code, got.header.Get("Content-Encoding"), u.count())
				}
			})
		})
	}
}

var deadlineHeaders = []string{"Grpc-Timeout", "Connect-Timeout-Ms", "X-Envoy-Upstream-Rq-Timeout-Ms", "X-Stainless-Timeout", "X-Request-Timeout-Ms"}

// The provider gets the deadline in the header in which the caller sent it, reduced by the
// time that has passed.
func TestE13DeadlinesArePassedOnInTheirForm(t *testing.T) {
	for _, tt := range []struct{ name, value, first, second string }{
		{"Grpc-Timeout", "60S", "60000000u", "55000000u"},
		{"Connect-Timeout-Ms", "60000", "60000", "55000"},
		{"X-Envoy-Upstream-Rq-Timeout-Ms", "60000", "60000", "55000"},
		{"X-Request-Timeout-Ms", "60000", "60000", "55000"},
		{"X-Stainless-Timeout", "60", "60", "55"},
		{"X-Stainless-Timeout", "60.5", "60.5", "55.5"},
	} {
		for _, preset := range []string{OpenAI, Gemini} {
			t.Run(tt.name+" "+tt.value+" "+preset, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u := newTestServer(t, shaky(1, 503))
					r := newRig(t, []Spec{spec(t, "it", preset, u.URL, withPolicy(t, "fixed(5s) jitter=none attempts=2 attempt-timeout=2m"))})
					if got := r.get("/p/it/x", tt.name, tt.value); got.code != 200 {
						t.Fatalf("got %d %q", got.code, got.body)
					}
					list := u.requests()
					if len(list) != 2 || list[0].header.Get(tt.name) != tt.first || list[1].header.Get(tt.name) != tt.second {
						t.Errorf("sent %v, want %s and %s", list, tt.first, tt.second)
					}
					for _, name := range deadlineHeaders {
						if name != tt.name && list[0].header.Get(name) != "" {
							t.Errorf("%s: %q was added", name, list[0].header.Get(name))
						}
					}
				})
			})
		}
	}
}

func TestE13Deadlines(t *testing.T) {
	for _, tt := range []struct {
		name, provider string
		headers        []string
		code           string
		after          time.Duration
		sent           int
		header         string // tells the provider how much time is left
		failures       int    // failures that the breaker counts; the caller's own deadline is none
	}{
		{"no time at all", "it", []string{"X-Request-Timeout-Ms", "0"}, codeDeadline, 0, 0, "", 0},
		{"the caller's time", "it", []string{"Grpc-Timeout", "100m"}, codeDeadline, 100 * time.Millisecond, 1, "Grpc-Timeout", 0},
		{"the caller's time, as its SDK says it", "stainless", []string{"X-Stainless-Timeout", "0.1"}, codeDeadline, 100 * time.Millisecond, 1, "X-Stainless-Timeout", 0},
		{"the policy's time", "short", nil, codeTimeout, 50 * time.Millisecond, 1, "X-Request-Timeout-Ms", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
				r := newRig(t, []Spec{
					spec(t, "it", Generic, u.URL),
					spec(t, "short", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=1 attempt-timeout=50ms")),
					spec(t, "stainless", OpenAI, u.URL),
				})
				began := time.Now()
				got := r.get("/p/"+tt.provider+"/x", tt.headers...)
				if got.code != 504 || got.errorCode(t) != tt.code || got.header.Get(shouldRetry) != "false" {
					t.Errorf("got %d %q, want 504 %s", got.code, got.body, tt.code)
				}
				if d := time.Since(began); d != tt.after {
					t.Errorf("it took %v, want %v", d, tt.after)
				}
				list := u.requests()
				if len(list) != tt.sent {
					t.Fatalf("sent %d times, want %d", len(list), tt.sent)
				}
				for _, name := range deadlineHeaders {
					if tt.sent == 1 && (list[0].header.Get(name) != "") != (name == tt.header) {
						t.Errorf("sent %v, want %s alone", list[0].header, tt.header)
					}
				}
				if c := r.table.Load().providers[tt.provider].upstream.gate.breaker.Counts(); c.Failures != tt.failures {
					t.Errorf("the breaker has counted %+v, want %d failures", c, tt.failures)
				}
			})
		})
	}
}

// A deadline is for the beginning of a response: a stream goes on as long as the client
// reads it.
func TestE13ADeadlineDoesNotCutAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			sse(w, evContent)
			time.Sleep(250 * time.Millisecond)
			sse(w, evContent)
		})
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL)})
		got := r.ask(http.MethodPost, "/p/it/v1/messages", chat, "X-Stainless-Timeout", "0.2")
		if got.err != nil || strings.Count(got.body, "hello") != 2 {
			t.Errorf("got %q, %v", got.body, got.err)
		}
		if n := r.settled("it").Totals; n.Succeeded != 1 {
			t.Errorf("totals: %+v", n)
		}
	})
}

func TestARateThatLeavesNoRoomInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("ok"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Rate.Events, s.Rate.Per = 1, 10*time.Second })})
		r.get("/p/it/x")
		began := time.Now()
		got := r.get("/p/it/x", "X-Request-Timeout-Ms", "5000")
		if got.code != 504 || got.errorCode(t) != codeDeadline || got.header.Get("Retry-After") != "10" || time.Since(began) > 0 {
			t.Errorf("got %d %q, Retry-After %q", got.code, got.body, got.header.Get("Retry-After"))
		}
		r = newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2 total-timeout=2s"), func(s *Spec) { s.Rate.Events, s.Rate.Per = 1, 10*time.Second })})
		r.get("/p/it/x")
		if got := r.get("/p/it/x"); got.code != 503 || got.errorCode(t) != codeRate || got.header.Get("Retry-After") != "10" {
			t.Errorf("got %d %q, Retry-After %q", got.code, got.body, got.header.Get("Retry-After"))
		}
	})
}

func TestI5Hedging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				<-r.Context().Done()
				return
			}
			fmt.Fprint(w, "quick")
		})
		hedge := withPolicy(t, "fixed(1ms) attempts=2 attempt-timeout=5s hedge=20ms/100%")
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, hedge)})
		if got := r.get("/p/it/x"); got.body != "quick" || u.count() != 2 {
			t.Errorf("got %d %q after %d requests", got.code, got.body, u.count())
		}
		st := r.settled("it")
		if st.Totals.Hedges != 1 || st.Totals.Succeeded != 1 {
			t.Errorf("totals: %+v", st.Totals)
		}
		eventually(t, "the one that lost is gone", func() bool { return r.status("it").InFlight == 0 })
		if c := r.table.Load().providers["it"].upstream.gate.breaker.Counts(); c.Failures != 0 {
			t.Errorf("the one that lost counts as %+v", c)
		}
		// Requests that may cost money are not hedged.
		slow := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			time.Sleep(100 * time.Millisecond)
			fmt.Fprint(w, "slow")
		})
		r = newRig(t, []Spec{spec(t, "it", Anthropic, slow.URL, hedge, func(s *Spec) { s.RetryPosts = PostsUnanswered })})
		if got := r.ask(http.MethodPost, "/p/it/v1/messages", chat); got.body != "slow" || slow.count() != 1 {
			t.Errorf("got %d %q after %d requests, want one", got.code, got.body, slow.count())
		}
	})
}
