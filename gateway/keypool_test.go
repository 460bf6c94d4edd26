package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// byKey returns a handler that answers with the status for the key of the request.
func byKey(codes map[string]int, headers ...string) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if code := codes[r.Header.Get("X-Api-Key")]; code != 0 {
			fails(code, headers...)(n, w, r)
			return
		}
		fmt.Fprintf(w, "with %s", r.Header.Get("X-Api-Key"))
	}
}

// cold returns the keys that are avoided, with the reasons.
func cold(st Status) map[string]string {
	list := map[string]string{}
	for _, k := range st.Keys {
		if k.CoolUntil != nil {
			list[k.Name] = k.Reason
		}
	}
	for _, x := range st.Throttles {
		list[x.Key] = x.Reason
	}
	return list
}

func TestI7AnotherKeyAtOnce(t *testing.T) {
	for _, code := range []int{401, 402, 403, 429} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, byKey(map[string]int{"one": code, "two": code}))
				slow := "fixed(1h) attempts=4" // a wait would be noticed
				r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys("one", "two", "three"), withPolicy(t, slow))})
				tried := map[string]bool{}
				for range 20 { // keys are chosen at random
					if got := r.ask(http.MethodPost, "/p/it/v1/messages", chat); got.body != "with three" {
						t.Fatalf("got %d %q, want the answer to the third key", got.code, got.body)
					}
				}
				for _, s := range u.requests() {
					tried[s.header.Get("X-Api-Key")] = true
					if s.body != chat {
						t.Errorf("a key was tried with the body %q", s.body)
					}
				}
				st := r.settled("it")
				for name, reason := range cold(st) {
					if !strings.HasPrefix(reason, fmt.Sprint(code)) {
						t.Errorf("%s is left alone because of %q, want %d", name, reason, code)
					}
				}
				if got := len(cold(st)); got != len(tried)-1 {
					t.Errorf("%d keys are left alone, want the %d that were refused", got, len(tried)-1)
				}
				if st.Breaker != "closed" {
					t.Errorf("the breaker is %s: it is the keys that were refused", st.Breaker)
				}
			})
		})
	}
}

// Of two keys, the one that answers sooner gets more requests, and the other is still
// used.
func TestI6TheBetterKeyGetsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Api-Key") == "slow" {
				time.Sleep(20 * time.Millisecond)
			} else {
				time.Sleep(time.Millisecond)
			}
		})
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys("slow", "fast"))})
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 25 {
					r.get("/p/it/x")
				}
			})
		}
		callers.Wait()
		by := map[string]int{}
		for _, s := range u.requests() {
			by[s.header.Get("X-Api-Key")]++
		}
		if by["fast"] < 2*by["slow"] || by["slow"] == 0 {
			t.Errorf("sent %v, want most with the fast key", by)
		}
		st := r.settled("it")
		if st.TTFB <= 0 || len(st.Keys) != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// One request that the provider forbids with every key must not close the keys for other
// requests.
func TestARequestThatIsForbiddenWithAllKeysClosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(403))
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys("one", "two"))})
		got := r.ask(http.MethodPost, "/p/it/v1/messages", chat)
		if got.code != 403 || u.count() != 2 || got.header.Get(shouldRetry) == "true" {
			t.Errorf("got %d after %d requests, %s %q, want the 403 after both keys", got.code, u.count(), shouldRetry, got.header.Get(shouldRetry))
		}
		if c := cold(r.settled("it")); len(c) != 0 {
			t.Errorf("left alone: %v, want none", c)
		}
	})
}

func TestH18AllKeysCooling(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handle  func(int, http.ResponseWriter, *http.Request)
		first   int
		then    int
		after   string
		reasons string
		why     string
	}{
		{"throttled", fails(429, "Retry-After", "300"), 429, 429, "60", "429", "its keys were throttled (429)"},
		{"refused for a time", fails(401, "Retry-After", "200"), 401, 503, "60", "401", "its keys were throttled (401)"},
		{"quota gone for a time", func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(429)
			fmt.Fprint(w, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`)
		}, 429, 429, "600", "429 insufficient_quota", "its keys were throttled (429 insufficient_quota)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, tt.handle)
				r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys("one", "two"))})
				got := r.ask(http.MethodPost, "/p/it/v1/messages", chat)
				if got.code != tt.first || strings.Contains(got.body, "tideover") {
					t.Errorf("first: %d %q, want the provider's own %d", got.code, got.body, tt.first)
				}
				if n := u.count(); n != 2 {
					t.Errorf("asked %d times, want once with each key", n)
				}
				got = r.ask(http.MethodPost, "/p/it/v1/messages", chat)
				if got.code != tt.then || got.errorCode(t) != codeCooling || got.header.Get("Retry-After") != tt.after {
					t.Errorf("then: %d %q, Retry-After %q, want %d and %s", got.code, got.body, got.header.Get("Retry-After"), tt.then, tt.after)
				}
				if !strings.Contains(got.body, "provider it: "+tt.why) {
					t.Errorf("then: %q, want that it names the reason", got.body)
				}
				if got.header.Get(shouldRetry) != "" {
					t.Errorf("%s: %q on an answer that says when to come again", shouldRetry, got.header.Get(shouldRetry))
				}
				if n := u.count(); n != 2 {
					t.Errorf("asked %d times, want no more", n)
				}
				st := r.settled("it")
				if st.State != Throttled || st.Since == nil || st.Why != "POST /v1/messages: "+tt.why {
					t.Errorf("state %s since %v, %q, want throttled, %q", st.State, st.Since, st.Why, tt.why)
				}
				for _, k := range []string{"key-1", "key-2"} {
					if cold(st)[k] != tt.reasons {
						t.Errorf("%s is left alone because of %q, want %q", k, cold(st)[k], tt.reasons)
					}
				}
			})
		})
	}
}

func TestAShortCoolingIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, shaky(1, 429, "Retry-After-Ms", "200"))
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL)})
		first := make(chan reply, 1)
		go func() { first <- r.ask(http.MethodPost, "/p/it/a", chat) }()
		eventually(t, "the key is left alone", func() bool { return len(cold(r.status("it"))) == 1 })
		began := time.Now()
		if got := r.ask(http.MethodPost, "/p/it/a", chat); got.body != "done" {
			t.Errorf("got %d %q", got.code, got.body)
		}
		if d := time.Since(began); d > 250*time.Millisecond {
			t.Errorf("waited %v", d)
		}
		if got := <-first; got.body != "done" {
			t.Errorf("the first: %d %q", got.code, got.body)
		}
		if n := u.count(); n != 3 {
			t.Errorf("asked %d times, want 3: nothing is sent to a key that waits", n)
		}
	})
}

// A throttled key is throttled for the requests of all callers.
func TestCoolingIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main := newTestServer(t, fails(429, "Retry-After", "50"))
		spare := newTestServer(t, fails(429, "Retry-After", "40"))
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, main.URL, fallback("spare")),
			spec(t, "spare", Anthropic, spare.URL),
		})
		r.ask(http.MethodPost, "/p/main/x", chat)
		got := r.ask(http.MethodPost, "/p/spare/x", chat)
		if got.code != 429 || got.header.Get("Retry-After") != "40" || spare.count() != 1 {
			t.Errorf("got %d, Retry-After %q after %d requests", got.code, got.header.Get("Retry-After"), spare.count())
		}
		got = r.ask(http.MethodPost, "/p/main/x", chat)
		if got.code != 429 || got.header.Get("Retry-After") != "40" || main.count() != 1 {
			t.Errorf("got %d, Retry-After %q, want that of the first that is back", got.code, got.header.Get("Retry-After"))
		}
	})
}

// A response to a caller's own key does not block the provider for others.
func TestCallersKeysCloseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, byKey(map[string]int{"poor": 429}, "Retry-After", "300"))
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys(), func(s *Spec) { s.Keys = nil })})
		for range 10 {
			if got := r.ask(http.MethodPost, "/p/it/x", chat, "X-Api-Key", "poor"); got.code != 429 {
				t.Fatalf("got %d, want the caller's 429", got.code)
			}
		}
		if got := r.ask(http.MethodPost, "/p/it/x", chat, "X-Api-Key", "rich"); got.body != "with rich" {
			t.Errorf("got %d %q", got.code, got.body)
		}
		st := r.settled("it")
		if st.State != Up || len(st.Keys) != 0 {
			t.Errorf("state %s, keys %v", st.State, st.Keys)
		}
	})
}
