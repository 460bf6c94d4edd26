package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// refusal is a provider that rejects every key until the test sets lifted.
type refusal struct {
	*testServer
	lifted atomic.Bool
}

func newRefusal(t *testing.T, code int, body string) *refusal {
	t.Helper()
	f := new(refusal)
	f.testServer = newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		if !f.lifted.Load() {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return
		}
		fmt.Fprint(w, "done")
	})
	return f
}

const noQuota = `{"error":{"code":"insufficient_quota"}}`

// A provider that rejects all its keys stays open: the gateway sends each request once,
// and the caller gets the provider's response.
func TestARefusedKeyIsUsedWhenThereIsNoOther(t *testing.T) {
	for _, tt := range []struct {
		name string
		code int
		body string
		keys []string
		why  string
	}{
		{"one key, 401", 401, "no", []string{"one"}, "its keys were rejected (401)"},
		{"one key, 402", 402, "no", []string{"one"}, "its keys were rejected (402)"},
		{"one key without quota", 429, noQuota, []string{"one"}, "its keys were rejected (429 insufficient_quota)"},
		{"two keys, 401", 401, "no", []string{"one", "two"}, "its keys were rejected (401)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newRefusal(t, tt.code, tt.body)
				r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys(tt.keys...))})
				for i := range 10 {
					before := u.count()
					got := r.ask(http.MethodPost, "/p/it/v1/messages", chat)
					if got.code != tt.code || got.body != tt.body {
						t.Fatalf("request %d: %d %q, want the provider's own answer", i+1, got.code, got.body)
					}
					want := 1
					if i == 0 {
						want = len(tt.keys) // the first request tries all keys
					}
					if n := u.count() - before; n != want {
						t.Errorf("request %d was sent %d times, want %d", i+1, n, want)
					}
				}
				used := map[string]bool{}
				for _, s := range u.requests() {
					used[s.header.Get("X-Api-Key")] = true
				}
				if len(used) != len(tt.keys) {
					t.Errorf("used %v, want all keys in turn", used)
				}
				st := r.settled("it")
				if st.State != Refused || st.Why != tt.why || st.Breaker != "closed" || !st.Keys[0].Refused || st.Keys[0].CoolUntil == nil {
					t.Errorf("%s, %q, breaker %s, keys %+v, want %q", st.State, st.Why, st.Breaker, st.Keys, tt.why)
				}
				u.lifted.Store(true)
				if got := r.ask(http.MethodPost, "/p/it/v1/messages", chat); got.body != "done" {
					t.Errorf("got %d %q, want that it is noticed at once", got.code, got.body)
				}
				st = r.settled("it")
				if st.State != Up || st.Why != "" {
					t.Errorf("afterwards: %s, %q", st.State, st.Why)
				}
				if free := len(st.Keys) - len(cold(st)); free != 1 {
					t.Errorf("%d keys are free, want the one that was let in", free)
				}
			})
		})
	}
}

// The gateway does not use a rejected key while another key or a fallback takes the
// requests.
func TestARefusedKeyIsAvoidedWhileThereIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, byKey(map[string]int{"one": 401}))
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys("one", "two"))})
		bad, spare := newTestServer(t, fails(401)), newTestServer(t, says("the spare"))
		f := newRig(t, []Spec{spec(t, "main", Anthropic, bad.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL)})
		for range 20 {
			if got := r.ask(http.MethodPost, "/p/it/x", chat); got.body != "with two" {
				t.Fatalf("got %d %q", got.code, got.body)
			}
			if got := f.ask(http.MethodPost, "/p/main/x", chat); got.body != "the spare" {
				t.Fatalf("got %d %q", got.code, got.body)
			}
		}
		refused := 0
		for _, s := range u.requests() {
			if s.header.Get("X-Api-Key") == "one" {
				refused++
			}
		}
		if refused > 1 { // keys are chosen at random, so it may be none
			t.Errorf("the refused key was used %d times beside one that is not refused", refused)
		}
		if bad.count() != 1 {
			t.Errorf("the provider was asked %d times, want once", bad.count())
		}
		if st := f.settled("main"); st.Failovers[0].Why != "401 on all keys" || st.Why != "its keys were rejected (401)" {
			t.Errorf("failed over because of %q; %q", st.Failovers[0].Why, st.Why)
		}
		// The fallback becomes unavailable: only the rejected key is left.
		if err := f.Control("spare", Open); err != nil {
			t.Fatal(err)
		}
		if got := f.ask(http.MethodPost, "/p/main/x", chat); got.code != 401 || bad.count() != 2 {
			t.Errorf("got %d %q after %d requests, want the 401", got.code, got.body, bad.count())
		}
	})
}

// The gateway prefers a throttled key to a rejected one.
func TestOneKeyIsRefusedAndTheOtherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited atomic.Bool
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("X-Api-Key") == "bad":
				fails(401)(n, w, r)
			case !waited.Swap(true):
				fails(429, "Retry-After-Ms", "200")(n, w, r)
			default:
				fmt.Fprint(w, "done")
			}
		})
		for range 8 { // keys are chosen at random
			waited.Store(false)
			before := u.count()
			r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys("bad", "good"))})
			if got := r.ask(http.MethodPost, "/p/it/x", chat); got.body != "done" {
				t.Fatalf("got %d %q", got.code, got.body)
			}
			if n := u.count() - before; n > 3 {
				t.Errorf("sent %d times, want at most 3", n)
			}
		}
	})
}

// A fallback with a bad key does not reduce the attempts of the provider that was asked
// for.
func TestAFallbackWithABadKeyIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, shaky(3, 503)), newTestServer(t, fails(401))
		r := newRig(t, []Spec{spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL)})
		// Two attempts at main, one at the fallback, and the last one at main.
		got := r.ask(http.MethodPost, "/p/main/x", chat)
		if got.code != 503 || u.count() != 3 || spare.count() != 1 {
			t.Errorf("got %d %q after %d and %d requests", got.code, got.body, u.count(), spare.count())
		}
		if got := r.ask(http.MethodPost, "/p/main/x", chat); got.body != "done" || spare.count() != 1 {
			t.Errorf("got %d %q", got.code, got.body)
		}
		if n := r.settled("main").Totals; n.Failovers != 1 {
			t.Errorf("totals: %+v, want one failover: the way back is none", n)
		}
	})
}

func TestWhyKeysAreClosed(t *testing.T) {
	for _, tt := range []struct {
		c           blockReasons
		text, brief string
	}{
		{blockReasons{}, "", "no usable key"},
		{blockReasons{rejected: []string{"401"}}, "rejected (401)", "401 on all keys"},
		{blockReasons{throttles: []string{"429"}}, "throttled (429)", "429 on all keys"},
		{blockReasons{rejected: []string{"401", "402"}, throttles: []string{"429"}}, "rejected (401, 402) or throttled (429)", "401, 402, 429 on all keys"},
	} {
		if text, brief := tt.c.String(), tt.c.brief(); text != tt.text || brief != tt.brief {
			t.Errorf("%+v: %q and %q, want %q and %q", tt.c, text, brief, tt.text, tt.brief)
		}
		if got := tt.c.throttled(); got != strings.Contains(tt.text, "429") {
			t.Errorf("%+v: throttled is %v", tt.c, got)
		}
	}
}
