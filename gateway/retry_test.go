package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
)

// shaky returns a handler that fails this many times before it succeeds.
func shaky(times, code int, headers ...string) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if n <= times {
			fails(code, headers...)(n, w, r)
			return
		}
		fmt.Fprint(w, "done")
	}
}

func TestA1WhatIsSentAgain(t *testing.T) {
	keyed := func(s *Spec) { s.IdempotencyKeys = true }
	for _, tt := range []struct {
		name   string
		method string
		preset string
		change func(*Spec)
		handle func(int, http.ResponseWriter, *http.Request)
		code   int
		sent   int
	}{
		{"GET after two 503", "GET", Anthropic, nil, shaky(2, 503), 200, 3},
		{"POST to a provider after two 503", "POST", Anthropic, nil, shaky(2, 503), 200, 3},
		{"POST to a provider after 409", "POST", OpenAI, nil, shaky(1, 409), 200, 2},
		{"POST to Gemini after 409", "POST", Gemini, nil, shaky(1, 409), 409, 1},
		{"POST to anybody after 503", "POST", Generic, nil, shaky(1, 503), 503, 1},
		{"POST to anybody after 503 with Retry-After", "POST", Generic, nil, shaky(1, 503, "Retry-After", "0"), 200, 2},
		{"POST that may be repeated", "POST", Generic, func(s *Spec) { s.Repeatable = []Route{{"POST", "/v1/search/"}} }, shaky(1, 503), 200, 2},
		{"POST with a key of ours", "POST", Generic, keyed, shaky(1, 503), 200, 2},
		{"POST when said so", "POST", Generic, func(s *Spec) { s.RetryPosts = PostsUnanswered }, shaky(1, 503), 200, 2},
		{"POST that was not answered", "POST", Anthropic, nil, breaksOff, 502, 1},
		{"POST that was not answered, when said so", "POST", Anthropic, func(s *Spec) { s.RetryPosts = PostsUnanswered }, breaksOff, 200, 2},
		{"four times is the end", "GET", Generic, nil, fails(500), 500, 4},
		{"a plain no", "POST", Anthropic, nil, fails(400), 400, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, tt.handle)
				change := tt.change
				if change == nil {
					change = func(*Spec) {}
				}
				r := newRig(t, []Spec{spec(t, "it", tt.preset, u.URL, change)})
				got := r.ask(tt.method, "/p/it/v1/search/x", "body")
				if got.code != tt.code {
					t.Errorf("got %d %q, want %d", got.code, got.body, tt.code)
				}
				list := u.requests()
				if len(list) != tt.sent {
					t.Fatalf("sent %d times, want %d", len(list), tt.sent)
				}
				st := r.settled("it")
				if n := st.Totals; n.Retries != uint64(tt.sent-1) || n.Attempts != uint64(tt.sent) || n.Amplified != float64(tt.sent) {
					t.Errorf("totals: %+v, want %d attempts", n, tt.sent)
				}
				if n := r.kinds(retry.Waiting); n != tt.sent-1 {
					t.Errorf("%d Waiting events, want %d", n, tt.sent-1)
				}
				for i, s := range list {
					if s.body != "body" {
						t.Errorf("attempt %d had the body %q", i+1, s.body)
					}
					if n := s.header.Get("X-Tideover-Attempt"); n != fmt.Sprint(i+1) || s.header.Get("X-Tideover-Layer") != "gateway" {
						t.Errorf("attempt %d is sent as number %q of layer %q", i+1, n, s.header.Get("X-Tideover-Layer"))
					}
					if k := s.header.Get("Idempotency-Key"); k != list[0].header.Get("Idempotency-Key") || (k != "") != (tt.name == "POST with a key of ours") {
						t.Errorf("attempt %d has the Idempotency-Key %q", i+1, k)
					}
				}
				failed := tt.code >= 500
				// After a success, only if the configuration does not allow to repeat the request.
				if no := got.header.Get(shouldRetry); (no == "false") != failed && (tt.method != "POST" || tt.code >= 400) {
					t.Errorf("%s: %q", shouldRetry, no)
				}
				if failed != (st.Totals.Failed == 1) || failed == (st.Totals.Succeeded == 1) {
					t.Errorf("totals: %+v", st.Totals)
				}
			})
		})
	}
}

// breaksOff is a handler that breaks off its first answer.
func breaksOff(n int, w http.ResponseWriter, _ *http.Request) {
	if n == 1 {
		hijack(w, "")
		return
	}
	fmt.Fprint(w, "done")
}

func TestH18TheLastAnswerComesBackAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(503, "X-Own", "yes", "Content-Type", "text/odd"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2"))})
		got := r.get("/p/it/x")
		if got.code != 503 || got.body != `{"error":{"message":"it is 503"}}` || got.header.Get("X-Own") != "yes" || got.header.Get("Content-Type") != "text/odd" {
			t.Errorf("got %d %v %q", got.code, got.header, got.body)
		}
		if got.header.Get(shouldRetry) != "false" {
			t.Errorf("%s is %q, want false", shouldRetry, got.header.Get(shouldRetry))
		}
		if n := r.settled("it").Totals; n.Failed != 1 {
			t.Errorf("totals: %+v", n)
		}
	})
}

// A retry at the same provider uses the retry budget; a failover to another provider does
// not.
func TestI1Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(503))
		spare := newTestServer(t, says("the spare"))
		small := "fixed(1ms) attempts=4 budget=refund(5,1,10)"
		r := newRig(t, []Spec{
			spec(t, "alone", Generic, u.URL, withPolicy(t, small), withoutBreaker),
			spec(t, "main", Generic, u.URL, withPolicy(t, small), withoutBreaker, fallback("spare")),
			spec(t, "spare", Generic, spare.URL),
		})
		for i, want := range []int{3, 1, 1} { // two retries, and then none
			before := u.count()
			r.get("/p/alone/x")
			if n := u.count() - before; n != want {
				t.Errorf("request %d: sent %d times, want %d", i+1, n, want)
			}
		}
		if st := r.settled("alone"); len(st.Budgets) != 1 || st.Budgets[0] != (Budget{Route: "GET /x", Tokens: 0, Max: 10}) {
			t.Errorf("budgets: %+v", st.Budgets)
		}
		for i := range 10 {
			if got := r.get("/p/main/x"); got.body != "the spare" {
				t.Fatalf("request %d: %d %q, want the spare", i+1, got.code, got.body)
			}
		}
		if got := giveUps(r, "alone"); got["budget"] != 3 {
			t.Errorf("given up: %v, want three for the budget", got)
		}
		if text := r.output(); !strings.Contains(text, `"reason":"budget"`) {
			t.Error("no event names the budget as the reason")
		}
	})
}

func giveUps(r *rig, name string) map[string]float64 {
	return r.table.Load().providers[name].stats.giveUps.all()
}

func TestI3PressureStretchesDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, shaky(1, 503))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(10ms..200ms) attempts=2"))})
		p := r.table.Load().providers["it"]
		for range 1000 {
			p.upstream.errors.Add(false)
		}
		if got := r.get("/p/it/x"); got.body != "done" {
			t.Fatalf("got %d %q", got.code, got.body)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, ev := range r.events {
			if ev.Kind == retry.Waiting && (ev.Delay < 90*time.Millisecond || ev.Delay > 200*time.Millisecond) {
				t.Errorf("waited %v, want about ten times 10ms, and no more than the cap", ev.Delay)
			}
		}
	})
}

func TestEachProviderHasItsPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(500))
		r := newRig(t, []Spec{
			spec(t, "once", Generic, u.URL, withPolicy(t, "fixed(1ms)")),
			spec(t, "often", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=5"), withoutBreaker),
		})
		for name, want := range map[string]int{"once": 1, "often": 5} {
			before := u.count()
			r.get("/p/" + name + "/x")
			if n := u.count() - before; n != want {
				t.Errorf("%s: sent %d times, want %d", name, n, want)
			}
			if st := r.settled(name); st.Policy != r.table.Load().providers[name].spec.Policy.String() {
				t.Errorf("%s: its policy is %q", name, st.Policy)
			}
		}
	})
}

func TestH18WhoeverIsRetriedAlreadyIsRetriedLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(503))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		r.get("/p/it/x", "X-Stainless-Retry-Count", "1")
		if n := u.count(); n != 2 {
			t.Errorf("sent %d times, want half of four", n)
		}
	})
}
