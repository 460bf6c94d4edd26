package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/limit"
)

func TestAReloadUnderLoadLosesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestServer(t, says("a")), newTestServer(t, says("b"))
		specs := func(i int) []Spec {
			address := a.URL
			if i%2 == 1 {
				address = b.URL
			}
			return []Spec{
				spec(t, "main", Anthropic, address, fallback("spare"), func(s *Spec) { s.Concurrent, s.Adaptive = 2+i%3, i%2 == 0 }),
				spec(t, "spare", Anthropic, b.URL, keys("k1", fmt.Sprint("k", i))),
			}
		}
		r := newRig(t, specs(0))
		var callers sync.WaitGroup
		var over atomic.Bool
		var n atomic.Int64
		answered := make(chan struct{})
		for range 8 {
			callers.Go(func() {
				for !over.Load() {
					if got := r.ask(http.MethodPost, "/p/main/v1/messages", chat); got.code != 200 {
						t.Errorf("got %d %q, %v", got.code, got.body, got.err)
					}
					n.Add(1)
					answered <- struct{}{}
				}
			})
		}
		for i := 1; i <= 20; i++ {
			if err := r.Reload(specs(i)); err != nil {
				t.Errorf("reload %d: %v", i, err)
			}
			for range 3 {
				<-answered
			}
		}
		over.Store(true)
		go func() {
			callers.Wait()
			close(answered)
		}()
		for range answered {
		}
		st := r.settled("main")
		if st.Totals.Requests != uint64(n.Load()) || st.Totals.Succeeded != uint64(n.Load()) {
			t.Errorf("totals %+v, want %d requests: they belong to the name", st.Totals, n.Load())
		}
		if st.InFlight != 0 {
			t.Errorf("%d are in flight", st.InFlight)
		}
	})
}

func TestAReloadKeepsWhatIsStillRight(t *testing.T) {
	base := func(address string, change ...func(*Spec)) []Spec {
		return []Spec{spec(t, "it", Anthropic, address, append([]func(*Spec){keys("one", "two"), func(s *Spec) {
			s.Rate, s.Concurrent, s.Adaptive = limit.Frequency{Events: 100, Per: time.Second}, 5, true
		}}, change...)...)}
	}
	for _, tt := range []struct {
		name   string
		change func(*Spec)
		lost   string // part of the state that is lost
	}{
		{"nothing changes", func(*Spec) {}, ""},
		{"another policy", func(s *Spec) { s.Policy = policy(t, "fixed(1s) attempts=2 total-timeout=20s") }, ""},
		{"other headers, priority and streams", func(s *Spec) {
			s.Headers, s.Priority, s.StreamIdle, s.MaxBody = []Header{{"X-A", NewSecret("b")}}, limit.High, time.Second, 5
		}, ""},
		{"another number of places", func(s *Spec) { s.Concurrent = 7 }, ""},
		{"another rate", func(s *Spec) { s.Rate.Events = 50 }, "rate"},
		{"another key", keys("one", "three"), "keys"},
		{"another breaker", func(s *Spec) { s.Breaker.ConsecutiveFailures = 3 }, "gate"},
		{"another address", func(s *Spec) { s.BaseURL = s.BaseURL.JoinPath("v2") }, "gate keys state rate slots send budgets"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, says("ok"))
				r := newRig(t, base(u.URL))
				r.get("/p/it/x")
				old := r.table.Load().providers["it"]
				old.keys.avoid(old.keys.keys[0], time.Hour, "402")
				if err := r.Control("it", Close); err != nil {
					t.Fatal(err)
				}
				old.keys.avoid(old.keys.keys[0], time.Hour, "402")
				if err := r.Reload(base(u.URL, tt.change)); err != nil {
					t.Fatal(err)
				}
				p := r.table.Load().providers["it"]
				for part, same := range map[string]bool{
					"gate": p.upstream.gate == old.upstream.gate, "keys": p.keys == old.keys, "state": p.upstream.upstreamState == old.upstream.upstreamState, "rate": p.upstream.rate == old.upstream.rate,
					"slots": p.upstream.slots == old.upstream.slots, "send": p.upstream.send == old.upstream.send, "budgets": p.budgets == old.budgets,
				} {
					if lost := strings.Contains(tt.lost, part); lost == same {
						t.Errorf("%s: kept %v", part, same)
					}
				}
				st := r.settled("it")
				if st.Totals.Requests != 1 || !st.Held || st.Breaker != "forced-closed" {
					t.Errorf("totals and what was said by hand belong to the name: %+v", st)
				}
				if st.Rate.Concurrent != p.spec.Concurrent || p.upstream.slots.Stats().Max != p.spec.Concurrent {
					t.Errorf("places: %+v, %+v", st.Rate, p.upstream.slots.Stats())
				}
				if c := cold(st); tt.name != "another address" && c["key-1"] != "402" || tt.name == "another address" && len(c) != 0 {
					t.Errorf("left alone: %v", c)
				}
			})
		})
	}
}

func TestAReloadIsWholeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("ok"))
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL)})
		bad := []Spec{spec(t, "new", Anthropic, u.URL), spec(t, "it", Anthropic, u.URL, fallback("unknown"))}
		err := r.Reload(bad)
		if _, ok := errors.AsType[*FieldError](err); !ok {
			t.Errorf("Become = %v, want a FieldError", err)
		}
		if got := r.get("/p/new/x"); got.code != 404 {
			t.Errorf("a provider of a configuration that was refused answers %d", got.code)
		}
		if got := r.get("/p/it/x"); got.code != 200 {
			t.Errorf("got %d", got.code)
		}
		if err := r.Reload([]Spec{bad[0]}); err != nil {
			t.Fatal(err)
		}
		if got := r.get("/p/it/x"); got.code != 404 || !strings.Contains(got.body, "configured: new") {
			t.Errorf("a provider that is gone answers %d %s", got.code, got.body)
		}
	})
}

func TestRequestsUnderWayFinishByTheOldConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			<-hold
			fmt.Fprint(w, "old")
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		got := make(chan reply)
		go func() { got <- r.get("/p/it/x") }()
		eventually(t, "it is under way", func() bool { return u.count() == 1 })
		if err := r.Reload(nil); err != nil {
			t.Fatal(err)
		}
		close(hold)
		if a := <-got; a.body != "old" {
			t.Errorf("got %d %q", a.code, a.body)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "beginning ")
			_ = http.NewResponseController(w).Flush()
			<-hold
			fmt.Fprint(w, "and end")
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		got := make(chan reply)
		go func() { got <- r.get("/p/it/x") }()
		eventually(t, "it is under way", func() bool { return u.count() == 1 })
		short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if err := r.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v while a request is under way", err)
		}
		if a := r.get("/p/it/x"); a.code != 503 || a.errorCode(t) != codeEnding || a.header.Get("Retry-After") == "" {
			t.Errorf("a new request got %d %s", a.code, a.body)
		}
		if _, err := (&http.Client{Transport: r.RoundTripper("it")}).Get("http://" + u.Listener.Addr().String()); err == nil {
			t.Error("a new request from inside is let in")
		}
		close(hold)
		if err := r.Drain(context.Background()); err != nil {
			t.Errorf("Drain = %v", err)
		}
		if a := <-got; a.body != "beginning and end" {
			t.Errorf("got %d %q", a.code, a.body)
		}
	})
}

// Drain with a context that has ended succeeds if no request is in progress: it has
// nothing to wait for.
func TestDrainOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") })
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		over, cancel := context.WithCancel(context.Background())
		cancel()
		for range 100 {
			if err := r.Drain(over); err != nil {
				t.Fatalf("Drain = %v while nothing is under way", err)
			}
		}
	})
}

// TestAProviderThatIsGoneServesWorkInProgress renames a provider: callers of the port can't
// use the old name any more, but the RoundTripper still can.
func TestAProviderThatIsGoneServesWorkInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, other := newTestServer(t, says("old")), newTestServer(t, says("new"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, keys("k1"))})
		inside := &http.Client{Transport: r.RoundTripper("it")}
		ask := func(want string) {
			t.Helper()
			resp, err := inside.Get(u.URL + "/x")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != want {
				t.Errorf("got %s %q, %v, want %q", resp.Status, text, err, want)
			}
		}
		for i, specs := range [][]Spec{{spec(t, "its", Generic, other.URL)}, {spec(t, "its", Generic, other.URL), spec(t, "more", Generic, other.URL)}, {}} {
			if err := r.Reload(specs); err != nil {
				t.Fatal(err)
			}
			ask("old")
			if got := r.get("/p/it/x"); got.code != 404 {
				t.Errorf("reload %d: from outside it answers %d", i, got.code)
			}
			if names := r.Names(); slices.Contains(names, "it") {
				t.Errorf("reload %d: there are %v", i, names)
			}
		}
		if err := r.Reload([]Spec{spec(t, "it", Generic, other.URL)}); err != nil {
			t.Fatal(err)
		}
		resp, err := inside.Get(other.URL + "/x")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if other.count() != 1 {
			t.Errorf("one that is back was asked %d times", other.count())
		}
		if _, err := (&http.Client{Transport: r.RoundTripper("never")}).Get(u.URL); !errors.Is(err, ErrUnknownProvider) {
			t.Errorf("one that never was: %v", err)
		}
	})
}
