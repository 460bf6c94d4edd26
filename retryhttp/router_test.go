package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// to is a router that sends the n-th attempt to the n-th place, and notes what
// it is told.
type to struct {
	places  []string
	wait    time.Duration // before an attempt is let go
	refuse  error         // instead of letting it go
	atOnce  bool          // a failure means that the next place can be asked at once
	mu      sync.Mutex
	story   []string
	dueDate []time.Time
}

// Route sends the attempt to its place.
//
// real clock: a router that waits runs in a bubble.
func (r *to) Route(req *http.Request, n int) (retryhttp.Leg, error) {
	due, _ := req.Context().Deadline()
	r.mu.Lock()
	r.dueDate = append(r.dueDate, due)
	r.mu.Unlock()
	if r.wait > 0 {
		select {
		case <-time.After(r.wait):
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	if r.refuse != nil {
		return nil, r.refuse
	}
	if len(r.places) > 0 {
		u, err := url.Parse(r.places[min(n, len(r.places))-1])
		if err != nil {
			return nil, err
		}
		req.URL, req.Host = u, u.Host
		req.Header.Set("Authorization", fmt.Sprintf("key-%d", n))
	}
	return &leg{r, n}, nil
}

func (r *to) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.story = append(r.story, fmt.Sprintf(format, args...))
}

func (r *to) told() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.story, ", ")
}

type leg struct {
	r *to
	n int
}

func (l *leg) Judged(resp *http.Response, failure error, o retry.Outcome) retry.Outcome {
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	l.r.note("%d: %d %v", l.n, status, failure != nil)
	if l.r.atOnce {
		o.After, o.Delay = 0, 1
	}
	return o
}

func (l *leg) Closed(err error) { l.r.note("%d closed %v", l.n, err) }

func TestRouterSendsEachAttemptSomewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newSite(t, answer{503, "Retry-After: 100", "no"})
		second := newSite(t, answer{200, "", "yes"})
		r := &to{places: []string{first.URL, second.URL}, atOnce: true}
		g := newRig(t, "fixed(1h) attempts=3", retryhttp.WithRouter(r))
		req := request(t, "PUT", "http://nowhere.invalid", strings.NewReader("hello"))
		req.Header.Set("Authorization", "mine")
		resp, body := g.send(t, req)
		wantStatus(t, resp, 200, second, 1)
		if body != "yes" || first.got(0) != "hello" || second.got(0) != "hello" || resp.Request != req {
			t.Errorf("body %q, sent %q and %q", body, first.got(0), second.got(0))
		}
		if a, b := first.heads[0].Get("Authorization"), second.heads[0].Get("Authorization"); a != "key-1" || b != "key-2" {
			t.Errorf("sent the keys %q and %q", a, b)
		}
		if req.URL.Host != "nowhere.invalid" || req.Header.Get("Authorization") != "mine" {
			t.Error("the caller's request was changed")
		}
		if want := "1: 503 true, 1 closed <nil>, 2: 200 false, 2 closed <nil>"; r.told() != want {
			t.Errorf("the router was told %q, want %q", r.told(), want)
		}
		if w := g.waits(); len(w) != 1 || w[0] > time.Millisecond {
			t.Errorf("waits %v, want one that is over at once", w)
		}
	})
}

func TestRouterIsToldHowABodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
		})
		r := &to{places: []string{s.URL}}
		resp, err := newRig(t, quick, retryhttp.WithRouter(r)).RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := "1: 200 false, 1 closed unexpected EOF"; r.told() != want {
			t.Errorf("told %q, want %q", r.told(), want)
		}
		// No body at all.
		none := newSite(t, answer{status: 204})
		r = &to{places: []string{none.URL}}
		resp, _ = newRig(t, quick, retryhttp.WithRouter(r)).send(t, request(t, "GET", none.URL, nil))
		wantStatus(t, resp, 204, none, 1)
		if want := "1: 204 false, 1 closed <nil>"; r.told() != want {
			t.Errorf("told %q, want %q", r.told(), want)
		}
	})
}

func TestRouterThatRefusesIsAnAttemptThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("all keys are cooling")
		for _, tt := range []struct {
			refuse   error
			attempts int
			reason   retry.Reason
		}{
			{busy, 3, retry.StopAttempts},
			{retry.After(busy, time.Hour), 1, retry.StopServerWait},
			{retry.Permanent(busy), 1, retry.StopPermanent},
		} {
			body := track(strings.NewReader("hello"))
			g := newRig(t, quick, retryhttp.WithRouter(&to{refuse: tt.refuse}))
			_, err := g.RoundTrip(request(t, "POST", "http://nowhere.invalid", body))
			e, ok := errors.AsType[*retry.Error](err)
			if !ok || e.Reason != tt.reason || e.Attempts != tt.attempts || !errors.Is(err, busy) || errors.Is(err, retryhttp.ErrNotIdempotent) {
				t.Errorf("%v: RoundTrip = %v, want %v after %d", tt.refuse, err, tt.reason, tt.attempts)
			}
			body.waitUntilClosed()
		}
	})
}

func TestE12AttemptTimeoutBeginsWhenTheRouterLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, statuses(200)...)
		r := &to{places: []string{s.URL}, wait: 150 * time.Millisecond}
		g := newRig(t, "fixed(0s) attempts=2 attempt-timeout=100ms total-timeout=1m", retryhttp.WithRouter(r))
		start := time.Now()
		resp, _ := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 200, s, 1)
		if due := r.dueDate[0].Sub(start); due != time.Minute {
			t.Errorf("the router saw a deadline in %v, want that of the whole call", due)
		}
	})
}

func TestE12AttemptTimeoutOfARoutedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := newServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		s := newSite(t, statuses(200)...)
		r := &to{places: []string{hung.URL, s.URL}}
		g := newRig(t, "fixed(0s) attempts=2 attempt-timeout=500ms", retryhttp.WithRouter(r))
		resp, _ := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 200, s, 1)
		for _, e := range g.events {
			if late, ok := errors.AsType[*retry.TimeoutError](e.Err); e.Kind == retry.AttemptFailed && (!ok || late.Limit != 500*time.Millisecond || late.Total) {
				t.Errorf("the failure is %v, want the attempt's timeout", e.Err)
			}
		}
	})
}

func TestE12TotalTimeoutEndsTheWaitForARouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, "fixed(0s) attempts=5 total-timeout=50ms", retryhttp.WithRouter(&to{wait: time.Hour}))
		_, err := g.RoundTrip(request(t, "GET", "http://nowhere.invalid", nil))
		if !errors.Is(err, retry.StopTotalTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RoundTrip = %v, want the total timeout", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		g = newRig(t, "fixed(0s) attempts=5 total-timeout=1h", retryhttp.WithRouter(&to{wait: time.Hour}))
		if _, err := g.RoundTrip(requestWith(t, ctx, "GET", "http://nowhere.invalid", nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("RoundTrip = %v, want the cancellation", err)
		}
	})
}
