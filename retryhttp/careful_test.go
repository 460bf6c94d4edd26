package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// stalls starts a server that sends only the headers of its first answers, and then
// nothing until the request is canceled. silent is the number of such answers.
func stalls(t *testing.T, silent int32, head http.Header, status int, then string) *httptest.Server {
	t.Helper()
	var n atomic.Int32
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > silent {
			w.Header().Set("Content-Type", head.Get("Content-Type"))
			_, _ = io.WriteString(w, then)
			return
		}
		maps.Copy(w.Header(), head)
		w.WriteHeader(status)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	return s
}

func TestD11CompressedAnswerThatStallsIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []string{quick, quick + " attempt-timeout=1m"} {
			s := stalls(t, 1, http.Header{"Content-Encoding": {"gzip"}}, 503, "ok")
			g := newRig(t, policy)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel() // ends the read in the background
			start := time.Now()
			resp, body := g.send(t, requestWith(t, ctx, "GET", s.URL, nil))
			if took := time.Since(start); resp.StatusCode != 200 || body != "ok" || took > time.Second {
				t.Errorf("%s: %s %q after %v", policy, resp.Status, body, took)
			}
			cancel()
		}
		s := stalls(t, 1, http.Header{"Content-Encoding": {"gzip"}, "Content-Type": {"text/event-stream"}}, 200, "")
		start := time.Now()
		g := newRig(t, quick, retryhttp.WithStreams(retryhttp.Streams{Hold: 20 * time.Millisecond, Idle: time.Hour}))
		resp, err := g.RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); time.Since(start) > time.Second {
			t.Errorf("closing a stream that says nothing took %v", time.Since(start))
		}
	})
}

func TestH17HedgeBesideAStreamThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stalls(t, 1, http.Header{"Content-Type": {"text/event-stream"}}, 200, content)
		g := newRig(t, "fixed(0s) attempts=2 hedge=20ms/100%", retryhttp.WithStreams(retryhttp.Streams{Hold: time.Hour}))
		start := time.Now()
		if _, body := g.send(t, request(t, "GET", s.URL, nil)); body != content || time.Since(start) != 20*time.Millisecond {
			t.Errorf("got %q after %v, want the content of the second after 20ms", body, time.Since(start))
		}
	})
}

func TestE12LimitsCoverTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			policy string
			want   error
		}{
			{"fixed(0s) attempts=2 attempt-timeout=200ms", nil},
			{"fixed(0s) attempts=2 total-timeout=200ms", retry.StopTotalTimeout},
		} {
			s := stalls(t, 1, http.Header{"Content-Type": {"text/event-stream"}}, 200, content)
			g := newRig(t, tt.policy, retryhttp.WithStreams(retryhttp.Streams{Hold: time.Hour}))
			start := time.Now()
			resp, err := g.RoundTrip(request(t, "GET", s.URL, nil))
			if took := time.Since(start); !errors.Is(err, tt.want) || took != 200*time.Millisecond {
				t.Errorf("%s: %v after %v, want %v after 200ms", tt.policy, err, took, tt.want)
			}
			if resp != nil {
				read(t, resp)
			}
		}
	})
}

func TestG16RedirectAfterAHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				time.Sleep(100 * time.Millisecond)
				http.Redirect(w, r, "/there", http.StatusFound)
			}
		})
		g := newRig(t, "fixed(0s) attempts=1 hedge=20ms/100%")
		resp, err := (&http.Client{Transport: g}).Do(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatalf("a hedge was counted as an attempt: %v", err)
		}
		read(t, resp)
	})
}

func TestE13TotalTimeoutIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []string{"fixed(0s) attempts=2 total-timeout=2s", "fixed(0s) attempts=2 attempt-timeout=10s total-timeout=2s"} {
			s := newScriptedServer(t, statuses(200)...)
			g := newRig(t, policy, retryhttp.WithDeadlineHeaders("X-Request-Timeout-Ms"))
			g.send(t, request(t, "GET", s.URL, nil))
			if left, ok := retryhttp.TimeLeft(s.heads[0]); !ok || left != 2*time.Second {
				t.Errorf("%s: the server got %v, %v", policy, left, ok)
			}
		}
	})
}

// spy is a router that changes the URL in place and records the outcomes.
type spy struct {
	host     string
	mu       sync.Mutex
	outcomes []retry.Outcome
	failures []error
	closed   int
}

func (s *spy) Route(req *http.Request, _ int) (retryhttp.Attempt, error) {
	if s.host != "" {
		req.URL.Scheme, req.URL.Host = "http", s.host
	}
	return s, nil
}

func (*spy) Next(_ context.Context, f retryhttp.Failure) retry.Decision { return f.Decision }

func (*spy) Rejected(*http.Response) bool { return false }

func (s *spy) Done(_ *http.Response, failure error, o retry.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes, s.failures = append(s.outcomes, o), append(s.failures, failure)
}

func (s *spy) Closed(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

func TestRouterMayChangeTheURLInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503, 200)...)
		g := newRig(t, quick, retryhttp.WithRouter(&spy{host: strings.TrimPrefix(s.URL, "http://")}))
		req := request(t, "GET", "http://virtual.example/x", nil)
		resp, _ := g.send(t, req)
		wantStatus(t, resp, 200, s, 2)
		if req.URL.Host != "virtual.example" {
			t.Errorf("the caller's request was changed: %v", req.URL)
		}
	})
}

func TestRouterMaySupplyTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := listen(t, func(n int, c net.Conn) {
			_, _ = c.Read(make([]byte, 1000))
			if n > 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
		})
		g := newRig(t, quick, retryhttp.WithRouter(&spy{host: addr}))
		req := (&http.Request{Method: "GET", URL: &url.URL{Path: "/x"}, Header: http.Header{}}).WithContext(t.Context())
		if resp, _ := g.send(t, req); resp.StatusCode != 200 || g.count(retry.Waiting) != 1 {
			t.Errorf("%s after %d retries, want one: the connection was lost", resp.Status, g.count(retry.Waiting))
		}
	})
}

func TestRouterIsToldOfCancellations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the losing attempt of a hedge
		r := new(spy)
		g := newRig(t, "fixed(0s) attempts=2 hedge=20ms/100%", retryhttp.WithRouter(r))
		g.send(t, request(t, "GET", newSlowFirst(t).URL, nil))
		r.wantCanceled(t, 2)
	})
	for _, policy := range []string{quick, quick + " attempt-timeout=1m"} {
		synctest.Test(t, func(t *testing.T) { // a caller that cancels
			r, s := new(spy), newSlowFirst(t)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := newRig(t, policy, retryhttp.WithRouter(r)).RoundTrip(requestWith(t, ctx, "GET", s.URL, nil)); err == nil || s.asked.Load() != 1 {
				t.Errorf("%s: %v after %d requests, want the cancellation after one", policy, err, s.asked.Load())
			}
			r.wantCanceled(t, 1)
		})
	}
}

// wantCanceled checks that there were this many attempts and that all were canceled.
func (s *spy) wantCanceled(t *testing.T, attempts int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.failures {
		if f != nil && s.outcomes[i].Class != retry.ClassCanceled {
			t.Errorf("%v was reported as %v", f, s.outcomes[i].Class)
		}
	}
	if len(s.outcomes) != attempts || s.closed != attempts {
		t.Errorf("%d attempts were judged and %d closed, want %d", len(s.outcomes), s.closed, attempts)
	}
}

func TestPanicOfTheTransportLeavesNothingOpen(t *testing.T) {
	p, _ := retry.Parse(quick)
	r := new(spy)
	tr, err := retryhttp.New(p, roundTripper(func(*http.Request) (*http.Response, error) { panic("boom") }), retryhttp.WithRouter(r))
	if err != nil {
		t.Fatal(err)
	}
	body := track(strings.NewReader("x"))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = tr.RoundTrip(request(t, "POST", "http://x.invalid", body))
	}()
	if len(r.outcomes) != 1 || r.closed != 1 {
		t.Errorf("judged %d times, closed %d times, want once", len(r.outcomes), r.closed)
	}
	body.waitUntilClosed()
}

func TestOneTransportNumbersItsCallsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(200)...)
		g := newRig(t, "fixed(0s) attempts=2 hedge=1h", retryhttp.WithRetry(retry.WithGrace(time.Second)))
		g.send(t, request(t, "GET", s.URL, nil))
		g.send(t, request(t, "POST", s.URL, strings.NewReader("x")))
		g.send(t, requestWith(t, retryhttp.WithPriorRetries(t.Context(), 1), "GET", s.URL, nil))
		calls := map[uint64]bool{}
		for _, e := range g.events {
			calls[e.Call] = true
		}
		if len(calls) != 3 {
			t.Errorf("three calls have %d numbers", len(calls))
		}
	})
}

func TestE13AnswerOfTheDeadlineIsNotEncoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := retryhttp.NewDeadline(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			<-r.Context().Done()
		}), retryhttp.DeadlineConfig{Max: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, h.ServeHTTP)
		resp, body := newRig(t, "fixed(0s) attempts=1").send(t, request(t, "GET", s.URL, nil))
		if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "20ms") {
			t.Errorf("%s %q", resp.Status, body)
		}
	})
}

func TestF14WhatCantBeReadIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stalls(t, 1, http.Header{"Content-Type": {"text/event-stream"}, "Content-Encoding": {"br"}}, 200, "")
		g := newRig(t, quick, retryhttp.WithStreams(retryhttp.Streams{Hold: time.Hour}))
		req := request(t, "GET", s.URL, nil)
		req.Header.Set("Accept-Encoding", "br")
		start := time.Now()
		resp, err := g.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); time.Since(start) != 0 {
			t.Errorf("an encoded stream was held for %v", time.Since(start))
		}
	})
}

func TestZeroHandlersSaySo(t *testing.T) {
	for name, h := range map[string]http.Handler{"Deadline": new(retryhttp.Deadline), "Limiter": new(retryhttp.Limiter)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != 500 || !strings.Contains(w.Body.String(), "not made by New"+name) {
			t.Errorf("%s: %d %q", name, w.Code, w.Body)
		}
	}
	var none *retryhttp.Transport
	none.CloseIdleConnections()
	if o := retryhttp.Classify(nil, io.ErrUnexpectedEOF); o.Class != retry.ClassTransient {
		t.Errorf("Classify(nil, …) = %v", o)
	}
	if !errors.As(error(&retryhttp.SilenceError{}), new(net.Error)) {
		t.Error("a SilenceError is no net.Error")
	}
}
