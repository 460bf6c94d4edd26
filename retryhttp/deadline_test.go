package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/memnet"
	"github.com/tideover/tideover/retryhttp"
)

// behindDeadline starts a server with the handler behind a Deadline.
func behindDeadline(t *testing.T, cfg retryhttp.DeadlineConfig, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	d, err := retryhttp.NewDeadline(h, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return newServer(t, d.ServeHTTP)
}

// ask sends a request with the headers and returns the response and its body.
func ask(t *testing.T, s *httptest.Server, lines string) (*http.Response, string) {
	t.Helper()
	req := request(t, "GET", s.URL, nil)
	maps.Copy(req.Header, headers(lines))
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp, read(t, resp)
}

// untilDone is a handler that waits for the end of its context, and sends the cause to
// the channel.
func untilDone(causes chan<- error) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		causes <- context.Cause(r.Context())
	}
}

func TestE13DeadlineEndsTheContextAndAnswers504(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		s := behindDeadline(t, retryhttp.DeadlineConfig{Max: time.Minute}, untilDone(causes))
		for _, tt := range []struct{ header, value string }{
			{"Grpc-Timeout", "20m"},
			{"Connect-Timeout-Ms", "20"},
			{"X-Envoy-Upstream-Rq-Timeout-Ms", "20"},
			{"X-Stainless-Timeout", "0.02"},
			{"X-Request-Timeout-Ms", "20"},
		} {
			start := time.Now()
			resp, body := ask(t, s, tt.header+": "+tt.value)
			took := time.Since(start)
			if resp.StatusCode != 504 || body != "the timeout of 20ms in "+tt.header+" has passed\n" || took != 20*time.Millisecond {
				t.Errorf("%s: %s %q after %v, want 504 after 20ms", tt.header, resp.Status, body, took)
			}
			cause := <-causes
			e, ok := errors.AsType[*retryhttp.DeadlineError](cause)
			if !ok || e.Limit != 20*time.Millisecond || e.Header != tt.header || !errors.Is(cause, context.DeadlineExceeded) || !e.Timeout() {
				t.Errorf("%s: the context ended with %v", tt.header, cause)
			}
		}
	})
}

func TestE13RequestWithoutTimeIsRefusedBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int64
		h := func(http.ResponseWriter, *http.Request) { ran.Add(1) }
		s := behindDeadline(t, retryhttp.DeadlineConfig{}, h)
		for _, lines := range []string{"Grpc-Timeout: 0n", "Connect-Timeout-Ms: 0", "X-Request-Timeout-Ms: 0\nX-Stainless-Timeout: 600"} {
			if resp, body := ask(t, s, lines); resp.StatusCode != 504 || !strings.Contains(body, "leaves no time") {
				t.Errorf("%s: %s %q, want 504", lines, resp.Status, body)
			}
		}
		gone, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		rec := httptest.NewRecorder()
		s.Config.Handler.ServeHTTP(rec, requestWith(t, gone, "GET", "/", nil))
		if rec.Code != 504 || ran.Load() != 0 {
			t.Errorf("a context that has ended: %d, and the handler ran %d times", rec.Code, ran.Load())
		}
	})
}

func TestE13TimeThatARequestGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minute = time.Minute
		for _, tt := range []struct {
			name    string
			cfg     retryhttp.DeadlineConfig
			headers string
			want    time.Duration
		}{
			{"what it says", retryhttp.DeadlineConfig{Max: time.Hour}, "Grpc-Timeout: 30M", 30 * minute},
			{"at most the maximum", retryhttp.DeadlineConfig{Max: minute}, "X-Stainless-Timeout: 600", minute},
			{"at most the maximum, however absurd", retryhttp.DeadlineConfig{Max: minute}, "X-Request-Timeout-Ms: 99999999999999999999999", minute},
			{"the default", retryhttp.DeadlineConfig{Max: time.Hour, Default: minute}, "X-Other: 1", minute},
			{"more than the default if it says so", retryhttp.DeadlineConfig{Max: time.Hour, Default: minute}, "Grpc-Timeout: 30M", 30 * minute},
			{"the default instead of garbage", retryhttp.DeadlineConfig{Max: time.Hour, Default: minute}, "Grpc-Timeout: -1S", minute},
			{"the maximum without a default", retryhttp.DeadlineConfig{Max: time.Hour}, "X-Other: 1", time.Hour},
			{"ten minutes without anything", retryhttp.DeadlineConfig{}, "X-Other: 1", 10 * minute},
			{"no limit but its own", retryhttp.DeadlineConfig{Max: forever}, "Grpc-Timeout: 1000000H", 1000000 * time.Hour},
		} {
			var left time.Duration
			s := behindDeadline(t, tt.cfg, func(_ http.ResponseWriter, r *http.Request) {
				if at, ok := r.Context().Deadline(); ok {
					left = time.Until(at)
				}
			})
			resp, _ := ask(t, s, tt.headers)
			if resp.StatusCode != 200 || left != tt.want {
				t.Errorf("%s: %s with %v left, want 200 and %v", tt.name, resp.Status, left, tt.want)
			}
		}
	})
}

func TestE13LimitOfTheServerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		s := behindDeadline(t, retryhttp.DeadlineConfig{Max: 20 * time.Millisecond}, untilDone(causes))
		for _, lines := range []string{"X-Other: 1", "X-Stainless-Timeout: 600"} {
			resp, body := ask(t, s, lines)
			e, ok := errors.AsType[*retryhttp.DeadlineError](<-causes)
			if resp.StatusCode != 504 || body != "the time limit of 20ms has passed\n" || !ok || e.Header != "" {
				t.Errorf("%s: %s %q, %v", lines, resp.Status, body, e)
			}
		}
	})
}

func TestE13AnswersOfTheHandlerAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const soon = "X-Request-Timeout-Ms: 15"
		for _, tt := range []struct {
			name    string
			handler func(w http.ResponseWriter, ended <-chan struct{})
			status  int
			body    string
		}{
			{"given in time", func(w http.ResponseWriter, _ <-chan struct{}) { io.WriteString(w, "hello") }, 200, "hello"},
			{"given in spite of the deadline", func(w http.ResponseWriter, ended <-chan struct{}) {
				<-ended
				w.WriteHeader(http.StatusBadGateway)
				io.WriteString(w, "mine")
			}, 502, "mine"},
			{"begun before the deadline", func(w http.ResponseWriter, ended <-chan struct{}) {
				io.WriteString(w, "begun")
				<-ended
			}, 200, "begun"},
			{"flushed and nothing else", func(w http.ResponseWriter, ended <-chan struct{}) {
				w.(http.Flusher).Flush()
				<-ended
			}, 200, ""},
			{"a status and nothing else", func(w http.ResponseWriter, ended <-chan struct{}) {
				w.WriteHeader(http.StatusNoContent)
				<-ended
			}, 204, ""},
			{"only announced", func(w http.ResponseWriter, ended <-chan struct{}) {
				w.WriteHeader(http.StatusEarlyHints)
				<-ended
			}, 504, "the timeout of 15ms in X-Request-Timeout-Ms has passed\n"},
			{"copied from a source that failed", func(w http.ResponseWriter, ended <-chan struct{}) {
				<-ended
				w.(io.ReaderFrom).ReadFrom(io.MultiReader())
			}, 504, "the timeout of 15ms in X-Request-Timeout-Ms has passed\n"},
			{"headers of an answer that did not come", func(w http.ResponseWriter, ended <-chan struct{}) {
				w.Header().Set("Content-Length", "7")
				w.Header().Set("Cache-Control", "max-age=3600")
				w.Header().Set("Etag", `"x"`)
				<-ended
			}, 504, "the timeout of 15ms in X-Request-Timeout-Ms has passed\n"},
		} {
			s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(w http.ResponseWriter, r *http.Request) { tt.handler(w, r.Context().Done()) })
			resp, body := ask(t, s, soon)
			if resp.StatusCode != tt.status || body != tt.body || resp.Header.Get("Cache-Control")+resp.Header.Get("Etag") != "" {
				t.Errorf("%s: %s %q %v, want %d %q", tt.name, resp.Status, body, resp.Header, tt.status, tt.body)
			}
		}
	})
}

func TestE13ClientThatGoesIsNotADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes, entered := make(chan error, 1), make(chan struct{})
		inner := untilDone(causes)
		s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(w http.ResponseWriter, r *http.Request) { close(entered); inner(w, r) })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-entered; cancel() }()
		if _, err := s.Client().Do(requestWith(t, ctx, "GET", s.URL, nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("Do = %v", err)
		}
		if cause := <-causes; !errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("the context ended with %v, want canceled", cause)
		}
	})
}

func TestE13OuterDeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		inner, err := retryhttp.NewDeadline(untilDone(causes), retryhttp.DeadlineConfig{Max: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s := behindDeadline(t, retryhttp.DeadlineConfig{Max: 20 * time.Millisecond}, inner.ServeHTTP)
		resp, body := ask(t, s, "Grpc-Timeout: 1M")
		if e, ok := errors.AsType[*retryhttp.DeadlineError](<-causes); resp.StatusCode != 504 || !ok || e.Limit != 20*time.Millisecond || body != e.Error()+"\n" {
			t.Errorf("%s %q, %v, want the limit of the outer one", resp.Status, body, e)
		}
		// The cause of another context may be private: the client does not get it.
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("secret"))
		defer cancel()
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, requestWith(t, ctx, "GET", "/", nil))
		if rec.Code != 504 || strings.Contains(rec.Body.String(), "secret") {
			t.Errorf("%d %q", rec.Code, rec.Body)
		}
		<-causes
	})
}

func TestE13ConnectionServesOnAfterA504(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int64
		d, err := retryhttp.NewDeadline(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-r.Context().Done()
				return
			}
			io.WriteString(w, "fast")
		}), retryhttp.DeadlineConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s := memnet.NewUnstartedServer(d)
		s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
			if st == http.StateNew {
				opened.Add(1)
			}
		}
		startServer(t, s)
		for i := range 6 {
			req := request(t, "POST", s.URL+[]string{"/slow", "/fast"}[i%2], strings.NewReader("body"))
			req.Header.Set("X-Request-Timeout-Ms", []string{"5", "60000"}[i%2])
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if body := read(t, resp); resp.StatusCode != []int{504, 200}[i%2] {
				t.Errorf("request %d: %s %q", i, resp.Status, body)
			}
		}
		if opened.Load() != 1 {
			t.Errorf("%d connections, want 1", opened.Load())
		}
	})
}

func TestE13PanicsPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(b) != "half" {
			t.Errorf("got %q, %v, want a connection that was cut", b, err)
		}
	})
}

func TestE13FilesOfAFormAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(_ http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1); err != nil {
				t.Error(err)
			}
			if files, _ := os.ReadDir(dir); len(files) != 1 {
				t.Errorf("%d files while the form is open, want 1", len(files))
			}
		})
		var form bytes.Buffer
		m := multipart.NewWriter(&form)
		part, _ := m.CreateFormFile("f", "big")
		part.Write(pattern(100)) // more than ParseMultipartForm may keep in memory
		m.Close()
		resp, err := s.Client().Post(s.URL, m.FormDataContentType(), &form)
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
		if files, _ := os.ReadDir(dir); len(files) != 0 {
			t.Errorf("left %v behind", files)
		}
	})
}

// TestE13WritesAtTheDeadlineDoNotRace runs handlers that write at the moment of the deadline.
//
// real clock: both answers are right, so it does not matter which of the timers comes first.
// In a bubble they would never run at the same time.
func TestE13WritesAtTheDeadlineDoNotRace(t *testing.T) {
	s := behindDeadline(t, retryhttp.DeadlineConfig{Max: 3 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		late := time.NewTimer(3 * time.Millisecond)
		defer late.Stop()
		select {
		case <-r.Context().Done():
			return
		case <-late.C:
		}
		io.WriteString(w, "just in time")
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 8 {
				resp, body := ask(t, s, "X-Other: 1")
				if ok := resp.StatusCode == 200 && body == "just in time"; !ok && (resp.StatusCode != 504 || body != "the time limit of 3ms has passed\n") {
					t.Errorf("%s %q, want one answer or the other", resp.Status, body)
				}
			}
		})
	}
	all.Wait()
}

func TestH18HandlerSeesPriorRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan int, 1)
		s := behindDeadline(t, retryhttp.DeadlineConfig{}, func(_ http.ResponseWriter, r *http.Request) { got <- retryhttp.InboundRetries(r.Context()) })
		for lines, want := range map[string]int{"X-Tideover-Attempt: 3": 2, "X-Stainless-Retry-Count: 1": 1, "X-Tideover-Attempt: 1": 0, "X-Other: 1": 0} {
			ask(t, s, lines)
			if n := <-got; n != want {
				t.Errorf("%s: the handler saw %d retries, want %d", lines, n, want)
			}
		}
	})
}

func TestNewDeadlineRefusesNonsense(t *testing.T) {
	for _, tt := range []struct {
		next http.Handler
		cfg  retryhttp.DeadlineConfig
		want string
	}{
		{nil, retryhttp.DeadlineConfig{}, "retryhttp.NewDeadline: next: nil"},
		{http.NotFoundHandler(), retryhttp.DeadlineConfig{Max: -1, Default: -2}, "retryhttp.NewDeadline: max: -1ns is negative; default: -2ns is negative"},
		{http.NotFoundHandler(), retryhttp.DeadlineConfig{Max: 1, Default: 2}, "retryhttp.NewDeadline: default: 2ns is above max 1ns"},
		{http.NotFoundHandler(), retryhttp.DeadlineConfig{Default: time.Hour}, "retryhttp.NewDeadline: default: 1h0m0s is above max 10m0s"},
	} {
		if _, err := retryhttp.NewDeadline(tt.next, tt.cfg); err == nil || err.Error() != tt.want {
			t.Errorf("NewDeadline(%+v) = %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

// A client states how long it waits. The context of the handler ends after that time.
func ExampleDeadline() {
	handler, _ := retryhttp.NewDeadline(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // a query that takes too long
	}), retryhttp.DeadlineConfig{Max: time.Minute})
	server := httptest.NewServer(handler)
	defer server.Close()

	req, _ := http.NewRequest(http.MethodGet, server.URL, nil)
	req.Header.Set("X-Request-Timeout-Ms", "20")
	resp, err := server.Client().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s: %s", resp.Status, body)
	// Output: 504 Gateway Timeout: the timeout of 20ms in X-Request-Timeout-Ms has passed
}
