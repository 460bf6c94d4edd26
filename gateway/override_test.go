package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
)

func TestControlRefusesWhatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []Spec{spec(t, "it", Anthropic, "http://localhost:1")})
		if err := r.Control("that", Open); !errors.Is(err, ErrUnknownProvider) || !strings.Contains(err.Error(), "configured: it") {
			t.Errorf("Control(that) = %v", err)
		}
		if err := r.Control("it", "paint"); !errors.Is(err, ErrUnknownAction) || !strings.Contains(err.Error(), "open, close, drain, reset") {
			t.Errorf("Control(paint) = %v", err)
		}
	})
}

func TestOpenedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, says("main")), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL), spec(t, "alone", Generic, u.URL),
		})
		for _, name := range []string{"main", "alone"} {
			if err := r.Control(name, Open); err != nil {
				t.Fatal(err)
			}
			if st := r.status(name); st.State != Opened || st.Breaker != "forced-open" || st.Since == nil {
				t.Errorf("%s: %+v", name, st)
			}
		}
		if got := r.get("/p/main/x"); got.body != "the spare" {
			t.Errorf("got %d %q, want the spare", got.code, got.body)
		}
		if st := r.status("main"); st.Failovers[0].Why != "blocked by an operator" {
			t.Errorf("failed over because of %q", st.Failovers[0].Why)
		}
		if got := r.get("/p/alone/x"); got.code != 503 || got.errorCode(t) != codeOpened || got.header.Get("Retry-After") != "5" {
			t.Errorf("got %d %q, Retry-After %q", got.code, got.body, got.header.Get("Retry-After"))
		}
		for _, name := range []string{"main", "alone"} {
			if err := r.Control(name, Reset); err != nil {
				t.Fatal(err)
			}
			if got := r.get("/p/" + name + "/x"); got.body != "main" {
				t.Errorf("%s after reset: %d %q", name, got.code, got.body)
			}
			if st := r.status(name); st.State != Up || st.Breaker != "closed" || st.Since != nil {
				t.Errorf("%s after reset: %+v", name, st)
			}
		}
	})
}

func TestClosedByHandCountsAsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(503))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=1"), func(s *Spec) { s.OpenFor = 40 * time.Second })})
		takeDown(r, "it")
		waits := make(chan reply)
		go func() { waits <- r.get("/p/it/x") }()
		eventually(t, "it waits", func() bool { return r.status("it").Waiting == 1 })
		if err := r.Control("it", Close); err != nil {
			t.Fatal(err)
		}
		if got := <-waits; got.body != `{"error":{"message":"it is 503"}}` {
			t.Errorf("who waited got %d %q, want to be let through", got.code, got.body)
		}
		for range 10 {
			r.get("/p/it/x")
		}
		if n := u.count(); n != 11 {
			t.Errorf("%d requests were sent, want all 11", n)
		}
		st := r.status("it")
		if st.State != Up || !st.Held || st.Breaker != "forced-closed" || len(st.Outages) != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestResetForgetsWhatWasToldOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, shaky(1, 429, "Retry-After", "300"))
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL)})
		r.get("/p/it/x")
		if got := r.get("/p/it/x"); got.code != 429 || u.count() != 1 {
			t.Fatalf("got %d after %d requests, want that the key is left alone", got.code, u.count())
		}
		if err := r.Control("it", Reset); err != nil {
			t.Fatal(err)
		}
		if got := r.get("/p/it/x"); got.body != "done" {
			t.Errorf("got %d %q", got.code, got.body)
		}
	})
}

func TestDrainAProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				<-hold
				fails(503)(n, w, r)
				return
			}
			fmt.Fprint(w, "main")
		})
		spare := newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL), spec(t, "alone", Generic, u.URL),
		})
		got := make(chan reply)
		go func() { got <- r.get("/p/main/x") }()
		eventually(t, "it is under way", func() bool { return u.count() == 1 })
		time.Sleep(time.Millisecond) // requests that began before the drain finish
		for _, name := range []string{"main", "alone"} {
			if err := r.Control(name, Drain); err != nil {
				t.Fatal(err)
			}
		}
		if a := r.get("/p/main/x"); a.body != "the spare" {
			t.Errorf("a new request got %d %q, want the spare", a.code, a.body)
		}
		if a := r.get("/p/alone/x"); a.code != 503 || a.errorCode(t) != codeDraining || a.header.Get("Retry-After") != "5" || a.header.Get(shouldRetry) != "" {
			t.Errorf("a new request got %d %q, %v", a.code, a.body, a.header)
		}
		close(hold)
		if a := <-got; a.body != "main" {
			t.Errorf("what was under way got %d %q, want that it is finished there", a.code, a.body)
		}
		if st := r.status("main"); st.State != Draining || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// When an operator opens the breaker, the gateway rejects the requests that wait for the
// provider.
func TestOpenRejectsWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(503))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2"), func(s *Spec) { s.OpenFor = 40 * time.Second })})
		takeDown(r, "it")
		got := make(chan reply)
		go func() { got <- r.get("/p/it/x") }()
		eventually(t, "it waits", func() bool { return r.status("it").Waiting == 1 })
		if err := r.Control("it", Open); err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.code != 503 || a.errorCode(t) != codeOpened {
			t.Errorf("got %d %q", a.code, a.body)
		}
	})
}

// If an operator opens the breaker during an attempt, the response tells the caller not to
// retry, and has no Retry-After.
func TestARequestUnderWayIsGivenUpByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		u := newTestServer(t, func(n int, w http.ResponseWriter, req *http.Request) {
			if err := r.Control("it", Open); err != nil {
				t.Error(err)
			}
			fails(503)(n, w, req)
		})
		r = newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		got := r.get("/p/it/x")
		if got.code != 503 || got.errorCode(t) != codeOpened || got.header.Get(shouldRetry) != "false" || got.header.Get("Retry-After") != "" {
			t.Errorf("got %d %q, %v", got.code, got.body, got.header)
		}
	})
}

// After an operator's reset one request probes at once: it does not wait for the time of
// the next probe.
func TestResetProbesAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		waiting int
	}{{"none waits", 0}, {"some wait", 3}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, says("done"))
				r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2"), func(s *Spec) { s.OpenFor = 60 * time.Second })})
				takeDown(r, "it")
				got := make(chan reply)
				for range tt.waiting {
					go func() { got <- r.get("/p/it/x") }()
				}
				eventually(t, "all wait", func() bool { return r.status("it").Waiting == tt.waiting })
				began := time.Now()
				if err := r.Control("it", Reset); err != nil {
					t.Fatal(err)
				}
				for range tt.waiting {
					if a := <-got; a.body != "done" {
						t.Errorf("a request that waited got %d %q", a.code, a.body)
					}
				}
				if a := r.get("/p/it/x"); a.body != "done" || time.Since(began) > 10*time.Second {
					t.Errorf("got %d %q after %v", a.code, a.body, time.Since(began))
				}
				eventually(t, "it is up", func() bool { return r.status("it").State == Up })
				if st := r.settled("it"); st.Totals.Probes != 1 || st.Breaker != "closed" || len(st.Outages) != 1 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// If the probe after a reset fails, the provider stays down.
func TestResetOfOneThatIsStillDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(503))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=1"), func(s *Spec) { s.OpenFor = 60 * time.Second })})
		takeDown(r, "it")
		if err := r.Control("it", Reset); err != nil {
			t.Fatal(err)
		}
		if got := r.get("/p/it/x"); got.code != 503 || u.count() != 1 {
			t.Errorf("got %d after %d requests, want the probe's answer", got.code, u.count())
		}
		st := r.settled("it")
		if st.State != Down || st.Recovery == nil || st.Recovery.Probes != 1 {
			t.Errorf("%+v", st)
		}
		if got := r.get("/p/it/x", "X-Request-Timeout-Ms", "50"); got.errorCode(t) != codeDown || u.count() != 1 {
			t.Errorf("got %d %q after %d requests, want that it is left alone", got.code, got.body, u.count())
		}
	})
}

func TestClosingAClosedBreakerPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []Spec{spec(t, "it", Generic, unreachableURL)})
		for _, action := range []string{Reset, Close, Reset, Close, Close, Reset} {
			if err := r.Control("it", action); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.kinds(retry.BreakerClosed) + r.kinds(retry.BreakerOpened); n != 0 {
			t.Errorf("%d breaker events, want none: all requests passed all the time", n)
		}
		for _, action := range []string{Open, Close, Reset} {
			if err := r.Control("it", action); err != nil {
				t.Fatal(err)
			}
		}
		if o, c := r.kinds(retry.BreakerOpened), r.kinds(retry.BreakerClosed); o != 1 || c != 1 {
			t.Errorf("%d BreakerOpened and %d BreakerClosed events, want one of each", o, c)
		}
	})
}
