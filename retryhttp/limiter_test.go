package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// counter is a server behind a limiter. It holds requests to /hold until the test
// releases them, and answers all others at once.
type counter struct {
	*httptest.Server
	limiter *retryhttp.Limiter
	release chan struct{}

	mu     sync.Mutex
	served []string // names of the requests, in the order in which they were admitted
}

func newCounter(t *testing.T, cfg retryhttp.LimiterConfig) *counter {
	t.Helper()
	c := &counter{release: make(chan struct{})}
	var err error
	c.limiter, err = retryhttp.NewLimiter(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.served = append(c.served, r.Header.Get("X-Name"))
		c.mu.Unlock()
		if r.URL.Path == "/hold" {
			<-c.release
		}
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(max(status, http.StatusOK))
		io.WriteString(w, limit.PriorityFrom(r.Context()).String())
	}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Server = newServer(t, c.limiter.ServeHTTP)
	return c
}

// order returns the names of the requests served so far.
func (c *counter) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.served)
}

// wantStats waits until all requests are blocked, and checks how many the limiter has
// admitted and how many wait.
func (c *counter) wantStats(t *testing.T, inside, waiting int) {
	t.Helper()
	synctest.Wait()
	if s := c.limiter.Stats(); s.InUse != inside || s.Waiting != waiting {
		t.Fatalf("%+v, want %d inside and %d waiting", s, inside, waiting)
	}
}

// hold sends a request that the server holds, and returns the channel for the status of
// its answer.
func (c *counter) hold(t *testing.T, ctx context.Context, name, priority string) <-chan int { //nolint:revive // t comes first
	t.Helper()
	req := requestWith(t, ctx, "GET", c.URL+"/hold", nil)
	req.Header.Set("X-Name", name)
	if priority != "" {
		req.Header.Set("X-Tideover-Priority", priority)
	}
	answered := make(chan int, 1)
	go func() {
		resp, err := c.Client().Do(req)
		if err != nil {
			answered <- 0
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	return answered
}

// wantRefusal checks the answer to a rejected request: its status and its Retry-After.
func wantRefusal(t *testing.T, resp *http.Response, status int, least, most time.Duration) {
	t.Helper()
	sec, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	ms, err2 := strconv.Atoi(resp.Header.Get("Retry-After-Ms"))
	wait := time.Duration(ms) * time.Millisecond
	if resp.StatusCode != status || err != nil || err2 != nil || sec != (ms+999)/1000 || sec < 1 || ms < 1 || wait < least || wait > most {
		t.Errorf("%s, Retry-After %q, Retry-After-Ms %q, want %d and a wait of %v to %v", resp.Status,
			resp.Header.Get("Retry-After"), resp.Header.Get("Retry-After-Ms"), status, least, most)
	}
	if d, ok := retryhttp.ServerDelay(resp.Header, time.Now()); !ok || d != wait {
		t.Errorf("a client of ours reads %v, %v, want %v", d, ok, wait)
	}
}

func TestH18ExcessIsRefusedAtOnceWithRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, cfg := range map[string]retryhttp.LimiterConfig{
			"fixed":    {Concurrency: limit.ConcurrencyConfig{Max: 1}},
			"adaptive": {Adaptive: limit.AdaptiveConfig{Max: 1}},
		} {
			c := newCounter(t, cfg)
			first := c.hold(t, t.Context(), "", "")
			c.wantStats(t, 1, 0)
			start := time.Now()
			resp, body := ask(t, c.Server, "X-Other: 1")
			if took := time.Since(start); took != 0 || !strings.HasPrefix(body, "no room: come back in ") {
				t.Errorf("%s: %q after %v, want it at once", name, body, took)
			}
			// One request is served at a time, and a second is assumed for each.
			wantRefusal(t, resp, 503, time.Second, 15*time.Second)
			c.release <- struct{}{}
			if status := <-first; status != 200 || c.limiter.Stats().Refused != 1 {
				t.Errorf("%s: %d for the first, %d refused", name, status, c.limiter.Stats().Refused)
			}
			if resp, body := ask(t, c.Server, "X-Other: 1"); resp.StatusCode != 200 || body != "normal" {
				t.Errorf("%s: %s %q once there is room", name, resp.Status, body)
			}
			c.wantStats(t, 0, 0)
		}
	})
}

func TestH18WhoeverWaitsLeavesWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Max: 1, Queue: 2}})
		first := c.hold(t, t.Context(), "first", "")
		c.wantStats(t, 1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		leaving := c.hold(t, ctx, "leaving", "")
		c.wantStats(t, 1, 1)
		staying := c.hold(t, t.Context(), "staying", "")
		c.wantStats(t, 1, 2)
		cancel()
		if <-leaving != 0 {
			t.Error("a request that was canceled got an answer")
		}
		c.wantStats(t, 1, 1)
		c.release <- struct{}{}
		c.release <- struct{}{}
		if <-first != 200 || <-staying != 200 {
			t.Error("the others were not served")
		}
		if got := c.order(); !slices.Equal(got, []string{"first", "staying"}) || c.limiter.Stats().Refused != 0 {
			t.Errorf("served %v, %d refused", got, c.limiter.Stats().Refused)
		}
	})
}

func TestE13DeadlineInTheQueueIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Max: 1, Queue: 2}})
		d, err := retryhttp.NewDeadline(c.limiter, retryhttp.DeadlineConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, d.ServeHTTP)
		first := c.hold(t, t.Context(), "", "")
		c.wantStats(t, 1, 0)
		resp, _ := ask(t, s, "X-Request-Timeout-Ms: 20")
		wantRefusal(t, resp, 503, time.Millisecond, time.Minute) // a 503 says that the request was not processed; a 504 would not
		c.wantStats(t, 1, 0)
		c.release <- struct{}{}
		<-first
	})
}

func TestI8PriorityDecidesOnlyWhenTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, trusted := range []bool{true, false} {
			c := newCounter(t, retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Max: 1, Queue: 3}, TrustPriority: trusted})
			answers := []<-chan int{c.hold(t, t.Context(), "first", "")}
			c.wantStats(t, 1, 0)
			for i, who := range []struct{ name, priority string }{{"a", "low"}, {"b", "urgent!"}, {"c", " High "}} {
				answers = append(answers, c.hold(t, t.Context(), who.name, who.priority))
				c.wantStats(t, 1, i+1)
			}
			if trusted {
				// The queue is full: the request with the lowest priority makes room.
				answers = append(answers, c.hold(t, t.Context(), "d", "highest"))
				if status := <-answers[1]; status != 503 {
					t.Errorf("the one with the lowest priority got %d, want 503", status)
				}
				answers = slices.Delete(answers, 1, 2)
			}
			for range answers {
				c.release <- struct{}{}
			}
			for _, a := range answers {
				if status := <-a; status != 200 {
					t.Errorf("trusted %v: got %d", trusted, status)
				}
			}
			want := map[bool][]string{true: {"first", "d", "c", "b"}, false: {"first", "a", "b", "c"}}[trusted]
			if got := c.order(); !slices.Equal(got, want) {
				t.Errorf("trusted %v: served in the order %v, want %v", trusted, got, want)
			}
		}
	})
}

func TestI8HandlerGetsThePriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for trusted, want := range map[bool]string{true: "high", false: "normal"} {
			c := newCounter(t, retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Max: 1}, TrustPriority: trusted})
			if _, body := ask(t, c.Server, "X-Tideover-Priority: high"); body != want {
				t.Errorf("trusted %v: the handler saw %q, want %q", trusted, body, want)
			}
		}
		// Without TrustPriority, the priority in the context counts.
		c := newCounter(t, retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Max: 1}})
		rec := httptest.NewRecorder()
		c.limiter.ServeHTTP(rec, requestWith(t, limit.WithPriority(t.Context(), limit.Low), "GET", "/", nil))
		if rec.Body.String() != "low" {
			t.Errorf("the handler saw %q, want the priority of the context", rec.Body)
		}
	})
}

func TestRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perMinute := limit.Frequency{Events: 2, Per: time.Minute}
		c := newCounter(t, retryhttp.LimiterConfig{Rate: limit.RateConfig{Rate: perMinute, Burst: 2}})
		for range 2 {
			if resp, _ := ask(t, c.Server, "X-Other: 1"); resp.StatusCode != 200 {
				t.Errorf("within the burst: %s", resp.Status)
			}
		}
		// The slots are half a minute apart, and each rejected client gets its own.
		for i := range 3 {
			resp, _ := ask(t, c.Server, "X-Other: 1")
			want := min(time.Duration(i+1)*30*time.Second, 50*time.Second)
			wantRefusal(t, resp, 429, want-10*time.Second, want+want/5)
		}
		if s := c.limiter.Stats(); s.Refused != 3 || s.InUse != 0 {
			t.Errorf("%+v", s)
		}
		// MaxRetryAfter does not shorten the wait for a slot of the rate.
		c = newCounter(t, retryhttp.LimiterConfig{Rate: limit.RateConfig{Rate: limit.Frequency{Events: 1, Per: time.Hour}}, Status: 503})
		ask(t, c.Server, "X-Other: 1")
		resp, _ := ask(t, c.Server, "X-Other: 1")
		wantRefusal(t, resp, 503, 59*time.Minute, 72*time.Minute)
	})
}

func TestRateThatWaitsLeavesWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := limit.RateConfig{Rate: limit.Frequency{Events: 1, Per: time.Hour}, MaxWait: 2 * time.Hour}
		c := newCounter(t, retryhttp.LimiterConfig{Rate: cfg})
		ask(t, c.Server, "X-Other: 1")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := c.Client().Do(requestWith(t, ctx, "GET", c.URL, nil)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do = %v, want to wait", err)
		}
		start := time.Now()
		c.Close() // waits for all requests
		if took := time.Since(start); took > time.Second {
			t.Errorf("a request waited for %v after its client had gone", took)
		}
	})
}

func TestAdaptiveLearnsFromAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A status such as 503 of the handler shrinks the limit. Failures that show no
		// overload do not.
		for status, shrinks := range map[int]bool{503: true, 429: true, 504: true, 529: true, 500: false, 200: false} {
			c := newCounter(t, retryhttp.LimiterConfig{Adaptive: limit.AdaptiveConfig{Max: 10, Initial: 10}})
			for range 60 {
				resp, err := c.Client().Get(fmt.Sprintf("%s/?status=%d", c.URL, status))
				if err != nil {
					t.Fatal(err)
				}
				read(t, resp)
			}
			if s := c.limiter.Stats(); (s.Max < 10) != shrinks || s.InUse != 0 {
				t.Errorf("after answers with %d: %+v, want a smaller limit: %v", status, s, shrinks)
			}
		}
	})
}

func TestPanicGivesThePlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cfg := range []retryhttp.LimiterConfig{
			{Concurrency: limit.ConcurrencyConfig{Max: 1}},
			{Adaptive: limit.AdaptiveConfig{Max: 1}},
		} {
			l, err := retryhttp.NewLimiter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), cfg)
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(t, l.ServeHTTP)
			for range 3 {
				if _, err := s.Client().Get(s.URL); err == nil {
					t.Error("a handler that panics gave an answer")
				}
			}
			s.Close()
			if st := l.Stats(); st.InUse != 0 || st.Refused != 0 {
				t.Errorf("%+v, want all places free", st)
			}
		}
	})
}

func TestA1PostIsSentAgainWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Max: 1}, MaxRetryAfter: 30 * time.Millisecond})
		first := c.hold(t, t.Context(), "", "")
		c.wantStats(t, 1, 0)
		g := newRig(t, "fixed(0s) attempts=100")
		done := make(chan int)
		go func() {
			resp, err := g.RoundTrip(request(t, "POST", c.URL, strings.NewReader("x")))
			if err != nil {
				t.Error(err)
				done <- 0
				return
			}
			resp.Body.Close()
			done <- resp.StatusCode
		}()
		synctest.Wait()
		if g.count(retry.Waiting) != 1 {
			t.Error("the POST was not refused")
		}
		c.release <- struct{}{}
		if status := <-done; status != 200 || <-first != 200 {
			t.Errorf("the POST ended with %d, want 200 once there is room", status)
		}
	})
}

func TestNewLimiterRefusesNonsense(t *testing.T) {
	two := limit.ConcurrencyConfig{Max: 2}
	for _, tt := range []struct {
		next http.Handler
		cfg  retryhttp.LimiterConfig
		want string
	}{
		{nil, retryhttp.LimiterConfig{Concurrency: two}, "next: nil"},
		{http.NotFoundHandler(), retryhttp.LimiterConfig{}, "no limit is set: want concurrency, adaptive or rate"},
		{http.NotFoundHandler(), retryhttp.LimiterConfig{Concurrency: two, Adaptive: limit.AdaptiveConfig{Max: 2}}, "adaptive: can't be combined with concurrency"},
		{http.NotFoundHandler(), retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Queue: 2}}, "concurrency: max: 0 is below 1"},
		{http.NotFoundHandler(), retryhttp.LimiterConfig{Adaptive: limit.AdaptiveConfig{Min: 2}}, "adaptive: max: 0 is below 1; min: 2 is above max 0"},
		{http.NotFoundHandler(), retryhttp.LimiterConfig{Rate: limit.RateConfig{Burst: 2}, Status: 500, MaxRetryAfter: -1}, "status: 500 is neither 429 nor 503; max-retry-after: -1ns is negative"},
	} {
		if _, err := retryhttp.NewLimiter(tt.next, tt.cfg); err == nil || !strings.HasPrefix(err.Error(), "retryhttp.NewLimiter: ") || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("NewLimiter(%+v) = %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

// One request at a time, without a queue: the others are told when to
// come back.
func ExampleLimiter() {
	entered, leave := make(chan struct{}), make(chan struct{})
	limiter, _ := retryhttp.NewLimiter(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
	}), retryhttp.LimiterConfig{Concurrency: limit.ConcurrencyConfig{Max: 1}})
	server := httptest.NewServer(limiter)
	defer server.Close()

	go func() { _, _ = server.Client().Get(server.URL) }()
	<-entered
	resp, err := server.Client().Get(server.URL)
	close(leave)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	wait, _ := retryhttp.ServerDelay(resp.Header, time.Now())
	fmt.Println(resp.Status, wait > 0)
	// Output: 503 Service Unavailable true
}
