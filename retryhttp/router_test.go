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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// to is a router that sends the n-th attempt to the n-th server, and records the
// results.
type to struct {
	places  []string
	wait    time.Duration // how long Route waits
	refuse  error         // error that Route returns
	atOnce  bool          // Next asks for an immediate retry after a failure
	reject  int           // a status that counts as rejected
	asked   atomic.Int32  // calls of Next
	mu      sync.Mutex
	story   []string
	dueDate []time.Time
}

// Route sends the attempt to its server.
//
// real clock: a router that waits runs in a bubble.
func (r *to) Route(req *http.Request, n int) (retryhttp.Attempt, error) {
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
	return &attempt{r, n}, nil
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

// Next implements [retryhttp.Router].
func (r *to) Next(_ context.Context, f retryhttp.Failure) retry.Decision {
	r.asked.Add(1)
	if r.atOnce {
		return retry.Decision{By: retry.BySchedule, Prev: f.State.Prev}
	}
	return f.Decision
}

// attempt is an attempt of a router.
type attempt struct {
	r *to
	n int
}

// Rejected implements [retryhttp.Attempt].
func (a *attempt) Rejected(resp *http.Response) bool { return resp.StatusCode == a.r.reject }

// Done implements [retryhttp.Attempt].
func (a *attempt) Done(resp *http.Response, failure error, _ retry.Outcome) {
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	a.r.note("%d: %d %v", a.n, status, failure != nil)
}

// Closed implements [retryhttp.Attempt].
func (a *attempt) Closed(err error) { a.r.note("%d closed %v", a.n, err) }

func TestRouterSendsEachAttemptSomewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newScriptedServer(t, answer{503, "Retry-After: 100", "no"})
		second := newScriptedServer(t, answer{200, "", "yes"})
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
			t.Errorf("the router got %q, want %q", r.told(), want)
		}
		if w := g.waits(); len(w) != 1 || w[0] != 0 {
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
		// An answer without a body.
		none := newScriptedServer(t, answer{status: 204})
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
		s := newScriptedServer(t, statuses(200)...)
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
		s := newScriptedServer(t, statuses(200)...)
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

// The decision of a router is applied as [retry.WithReview] describes.
func TestRouterDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, answer{503, "Retry-After: 10", "no"})
		var seen []retryhttp.Failure
		stop := &decides{func(f retryhttp.Failure) retry.Decision {
			seen = append(seen, f)
			if len(seen) == 2 {
				return retry.Decision{Stop: retry.StopBudget}
			}
			return retry.Decision{Wait: f.PolicyWait}
		}}
		g := newRig(t, "fixed(1s) jitter=none attempts=5", retryhttp.WithRouter(stop))
		resp, body := g.send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 503, s, 2)
		wantReason(t, resp, retry.StopBudget)
		if w := g.waits(); body != "no" || len(w) != 1 || w[0] != time.Second {
			t.Errorf("body %q, waits %v", body, w)
		}
		first := seen[0]
		if first.Attempt == nil || first.Response == nil || first.Outcome.After != 10*time.Second || first.Decision.By != retry.ByServer || first.State.Attempt != 1 {
			t.Errorf("the router saw %+v", first)
		}
	})
}

// decides is a router that only decides; it does not change attempts.
type decides struct {
	next func(retryhttp.Failure) retry.Decision
}

func (*decides) Route(*http.Request, int) (retryhttp.Attempt, error) { return quietAttempt{}, nil }

func (d *decides) Next(_ context.Context, f retryhttp.Failure) retry.Decision { return d.next(f) }

// quietAttempt is an attempt that records nothing.
type quietAttempt struct{}

func (quietAttempt) Rejected(*http.Response) bool { return false }

func (quietAttempt) Done(*http.Response, error, retry.Outcome) {}

func (quietAttempt) Closed(error) {}

// The router works over a transport that sends a copy of the request and does not set
// the Request of the response.
func TestRouterOverAForeignTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newScriptedServer(t, answer{401, "X-Should-Retry: false", "no"})
		second := newScriptedServer(t, answer{200, "", "yes"})
		transport := newNetTransport(t)
		foreign := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := transport.RoundTrip(r.Clone(context.WithoutCancel(r.Context())))
			if resp != nil {
				resp.Request = nil
			}
			return resp, err
		})
		r := &to{places: []string{first.URL, second.URL}, atOnce: true, reject: 401}
		g := newRigOver(t, "fixed(1h) attempts=3", foreign, retryhttp.WithRouter(r))
		resp, body := g.send(t, request(t, "GET", "http://nowhere.invalid", nil))
		wantStatus(t, resp, 200, second, 1)
		if want := "1: 401 true, 1 closed <nil>, 2: 200 false, 2 closed <nil>"; body != "yes" || r.told() != want {
			t.Errorf("body %q, the router got %q, want %q", body, r.told(), want)
		}
	})
}

// A rejection counts as a failure only if another target is available.
func TestRouterWithoutAnotherTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(401)...)
		r := &to{places: []string{s.URL}}
		resp, _ := newRig(t, quick, retryhttp.WithRouter(r)).send(t, request(t, "GET", s.URL, nil))
		wantStatus(t, resp, 401, s, 1)
		if _, gaveUp := retryhttp.GaveUp(resp); gaveUp || r.asked.Load() != 0 {
			t.Errorf("gave up %v, Next was called %d times, want the response as it is", gaveUp, r.asked.Load())
		}
	})
}

// If the body can't be sent again, the router can't cause a retry. It is still asked once,
// also if a classifier hides that the body is lost.
func TestRouterIsAskedOnceAboutALostBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range [][]retryhttp.Option{
			nil,
			{retryhttp.WithRetry(retry.WithClassifier(func(error) retry.Outcome { return retry.Outcome{} }))},
		} {
			s := newScriptedServer(t, statuses(503)...)
			r := &to{places: []string{s.URL}, atOnce: true}
			g := newRig(t, "fixed(1s) attempts=4", append(opts, retryhttp.WithRouter(r))...)
			long := io.MultiReader(strings.NewReader(strings.Repeat("x", retryhttp.KeptInAll+1)))
			resp, _ := g.send(t, request(t, "PUT", s.URL, long))
			wantStatus(t, resp, 503, s, 1)
			wantReason(t, resp, retry.StopPermanent)
			if n := r.asked.Load(); n != 1 {
				t.Errorf("Next was called %d times, want once", n)
			}
		}
	})
}

// lateReader is a transport that answers before it has read the body, and reads the rest during the wait that follows.
type lateReader struct {
	sent atomic.Int32
	read sync.WaitGroup
}

// RoundTrip implements [http.RoundTripper].
//
// real clock: it runs in a bubble.
func (l *lateReader) RoundTrip(req *http.Request) (*http.Response, error) {
	l.sent.Add(1)
	_, _ = io.CopyN(io.Discard, req.Body, 1000)
	l.read.Go(func() {
		time.Sleep(time.Second)
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	})
	return &http.Response{StatusCode: 503, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("busy")), Request: req, ProtoMajor: 1}, nil
}

// A body that is lost after the decision to retry ends the request; no round without a request follows.
func TestABodyThatIsLostDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := new(lateReader)
		failed := 0
		tr := retryhttp.Must("fixed(2s) attempts=unlimited", next, retryhttp.WithRouter(new(to)),
			retryhttp.WithRetry(retry.WithObserver(func(e retry.Event) {
				if e.Kind == retry.AttemptFailed {
					failed++
				}
			})))
		long := io.MultiReader(strings.NewReader(strings.Repeat("x", retryhttp.KeptInAll+1)))
		resp, err := tr.RoundTrip(request(t, "PUT", "http://example.com/", long))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		next.read.Wait()
		wantReason(t, resp, retry.StopPermanent)
		if gaveUp, _ := retryhttp.GaveUp(resp); next.sent.Load() != 1 || failed != 2 || !strings.Contains(gaveUp.Error(), "can't be sent again") {
			t.Errorf("%d requests, %d failures, %v", next.sent.Load(), failed, gaveUp)
		}
	})
}

// Both attempts of a hedged round are done before the router is asked. It is asked once,
// about the attempt that started first.
func TestRouterIsAskedOnceAboutAHedgedRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		r := &to{places: []string{s.URL, s.URL + "/second"}}
		g := newRig(t, "fixed(0s) attempts=1 hedge=20ms/100%", retryhttp.WithRouter(r))
		resp, _ := g.send(t, request(t, "GET", s.URL, nil))
		if told := r.told(); resp.StatusCode != 503 || r.asked.Load() != 1 || !strings.Contains(told, "1: 503 true") || !strings.Contains(told, "2: 503 true") {
			t.Errorf("%s, Next was called %d times, told %q", resp.Status, r.asked.Load(), told)
		}
	})
}
