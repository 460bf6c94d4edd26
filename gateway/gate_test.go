package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
)

// sick is a provider that fails until the test makes it well.
type sick struct {
	*testServer
	well atomic.Bool
}

func newSick(t testing.TB, code int) *sick {
	t.Helper()
	s := new(sick)
	s.testServer = newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if s.well.Load() {
			fmt.Fprint(w, "done")
			return
		}
		fails(code)(n, w, r)
	})
	return s
}

// takeDown opens the provider's breaker with five failures in a row.
func takeDown(r *rig, name string) {
	r.t.Helper()
	b := r.table.Load().providers[name].upstream.gate.breaker
	for range 5 {
		if permit, err := b.Allow(); err == nil {
			permit.Done(breaker.Failure)
		}
	}
	if st := r.status(name); st.State != Down {
		r.t.Fatalf("%s is %s after five failures, want down", name, st.State)
	}
}

// Many callers wait for a provider that is down, and all get their answer when it is back.
func TestI9FiftyCallersOfASickProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newSick(t, 503)
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		takeDown(r, "it")
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if got := r.get("/p/it/x"); got.body != "done" {
					t.Errorf("got %d %q", got.code, got.body)
				}
			})
		}
		eventually(t, "all wait", func() bool { return r.status("it").Waiting == 50 })
		st := r.status("it")
		if st.ByClass["normal"] != st.Waiting || st.Recovery == nil || st.Since == nil || st.Breaker == "closed" {
			t.Errorf("status while all wait: %+v", st)
		}
		eventually(t, "a probe", func() bool { return u.count() >= 1 })
		u.well.Store(true)
		callers.Wait()
		if n := u.count(); n != 51 {
			t.Errorf("%d requests were sent for 50 callers, want those and the probe that failed", n)
		}
		st = r.settled("it")
		if st.Totals.Probes != 2 {
			t.Errorf("%d probes, want one that failed and one that did not", st.Totals.Probes)
		}
		eventually(t, "it is up", func() bool { return r.status("it").State == Up })
		st = r.status("it")
		if len(st.Outages) != 1 || st.Outages[0].Cause != "consecutive" || st.Outages[0].Probes != int(st.Totals.Probes) || st.Outages[0].Seconds < 0.5 {
			t.Errorf("outages: %+v", st.Outages)
		}
		if st.Breaker != "closed" || st.Since != nil {
			t.Errorf("afterwards: %+v", st)
		}
		if r.kinds(retry.BreakerOpened) != 1 || r.kinds(retry.BreakerClosed) != 1 {
			t.Errorf("%d BreakerOpened and %d BreakerClosed events, want one of each", r.kinds(retry.BreakerOpened), r.kinds(retry.BreakerClosed))
		}
	})
}

// Requests with a fallback do not wait; one at a time probes whether the provider is back.
func TestI2ADownProviderIsPassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, spare := newSick(t, 503), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL)})
		for r.status("main").State != Down {
			if got := r.get("/p/main/x"); got.body != "the spare" {
				t.Fatalf("got %d %q", got.code, got.body)
			}
		}
		if n := u.count(); n != 5 {
			t.Errorf("it took %d failures, want 5", n)
		}
		before := u.count()
		began := time.Now()
		for range 20 {
			if got := r.get("/p/main/x"); got.body != "the spare" {
				t.Fatalf("got %d %q", got.code, got.body)
			}
		}
		if n := u.count() - before; n > 0 || time.Since(began) > 0 {
			t.Errorf("%d requests went to the provider that is down, in %v", n, time.Since(began))
		}
		if st := r.status("main"); st.Failovers[0].Why != "down" {
			t.Errorf("the last failover is because of %q, want down", st.Failovers[0].Why)
		}
		u.well.Store(true)
		eventually(t, "it is back", func() bool { return r.get("/p/main/x").body == "done" })
		if st := r.settled("main"); st.Totals.Failed != 0 || st.Totals.Probes == 0 {
			t.Errorf("totals: %+v", st.Totals)
		}
	})
}

// A request that waits for one provider wakes up when another is back.
func TestWaitersGoWhereverTheDoorOpensFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newSick(t, 503), newSick(t, 503)
		far := func(s *Spec) { s.OpenFor = 60 * time.Second }
		r := newRig(t, []Spec{
			spec(t, "main", Generic, u.URL, fallback("spare"), withPolicy(t, "fixed(1ms) attempts=4"), func(s *Spec) { s.OpenFor = 50 * time.Second }),
			spec(t, "spare", Generic, spare.URL, far),
		})
		takeDown(r, "main")
		takeDown(r, "spare")
		got := make(chan reply, 1)
		go func() { got <- r.get("/p/main/x") }()
		eventually(t, "it waits", func() bool { return r.status("main").Waiting > 0 })
		spare.well.Store(true)
		if err := r.Control("spare", Close); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if a := <-got; a.body != "done" || time.Since(began) > 5*time.Second {
			t.Errorf("got %d %q after %v, want an answer as soon as the spare is up", a.code, a.body, time.Since(began))
		}
		u.well.Store(true)
		_ = r.Control("main", Close)
	})
}

// If the next probe is after the caller's deadline, the gateway responds at once.
func TestNoWaitForAProbeAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newSick(t, 503)
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.OpenFor = 30 * time.Second })})
		takeDown(r, "it")
		began := time.Now()
		got := r.get("/p/it/x", "X-Request-Timeout-Ms", "5000")
		if got.code != 503 || got.errorCode(t) != codeDown || time.Since(began) > 0 {
			t.Errorf("got %d %q after %v, want 503 at once", got.code, got.body, time.Since(began))
		}
		if after := got.header.Get("Retry-After"); after != "30" {
			t.Errorf("Retry-After %q, want 30", after)
		}
	})
}

// With room for one request at a time, waiting requests are served by priority, and all of
// them are served.
func TestI8Priorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var mu sync.Mutex
		first := make(chan struct{})
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				<-first
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, strings.TrimPrefix(r.URL.Path, "/"))
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Concurrent = 1 })})
		var callers sync.WaitGroup
		callers.Go(func() { r.get("/p/it/first") })
		eventually(t, "the only place is taken", func() bool { return u.count() == 1 })
		waiting := 0
		for _, class := range []string{"lowest", "low", "normal", "high", "highest"} {
			for range 3 {
				callers.Go(func() {
					if got := r.get("/p/it/"+class, "X-Tideover-Priority", class); got.code != 200 {
						t.Errorf("%s: %d %s", class, got.code, got.body)
					}
				})
				waiting++
				eventually(t, "it waits", func() bool { return r.status("it").Waiting == waiting })
			}
		}
		st := r.status("it")
		if st.InFlight != 1 || st.ByClass["high"] != 3 || st.Rate == nil || st.Rate.Concurrent != 1 {
			t.Errorf("status: %+v", st)
		}
		close(first)
		callers.Wait()
		want := []string{"first"}
		for _, class := range []string{"highest", "high", "normal", "low", "lowest"} {
			want = append(want, class, class, class)
		}
		if !slices.Equal(order, want) {
			t.Errorf("served in the order %v, want %v", order, want)
		}
	})
}

func TestAFullQueueTurnsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		u := newTestServer(t, func(int, http.ResponseWriter, *http.Request) { <-hold })
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Concurrent, s.Queue = 1, 1 })})
		var callers sync.WaitGroup
		callers.Go(func() { r.get("/p/it/x") })
		eventually(t, "the only place is taken", func() bool { return u.count() == 1 })
		shed := make(chan reply, 1)
		callers.Go(func() { shed <- r.get("/p/it/x") })
		eventually(t, "one waits", func() bool { return r.status("it").Waiting == 1 })
		got := r.get("/p/it/x")
		if got.code != 503 || got.errorCode(t) != codeQueue || got.header.Get("Retry-After") == "" {
			t.Errorf("got %d %q, want 503 with Retry-After", got.code, got.body)
		}
		callers.Go(func() { r.get("/p/it/x", "X-Tideover-Priority", "high") })
		if got := <-shed; got.code != 503 || got.errorCode(t) != codeQueue {
			t.Errorf("who had to make room got %d %q", got.code, got.body)
		}
		close(hold)
		callers.Wait()
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("ok"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Rate.Events, s.Rate.Per, s.Burst = 20, time.Second, 2 })})
		began := time.Now()
		for range 6 {
			if got := r.get("/p/it/x"); got.code != 200 {
				t.Fatalf("got %d %s", got.code, got.body)
			}
		}
		if d := time.Since(began); d < 199*time.Millisecond || d > 201*time.Millisecond {
			t.Errorf("six requests took %v, want 200ms: two at once, and 50ms between the others", d)
		}
		if st := r.settled("it"); st.Rate == nil || st.Rate.PerSecond != 20 {
			t.Errorf("rate: %+v", st.Rate)
		}
	})
}

func TestI4AdaptiveRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n%2 == 0 {
				fails(429, "Retry-After-Ms", "1")(n, w, r)
				return
			}
			fmt.Fprint(w, "ok")
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Adaptive = true })})
		for range 2 {
			r.get("/p/it/x")
		}
		st := r.settled("it")
		if st.Rate == nil || !st.Rate.Adaptive || st.Rate.PerSecond <= 0 || st.Totals.Throttled == 0 {
			t.Errorf("rate: %+v, totals %+v", st.Rate, st.Totals)
		}
	})
}
