package gateway

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// onPath returns a handler that answers one path with the status, and all others with 200.
func onPath(path string, code int, text string) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			fails(code)(n, w, r)
			return
		}
		fmt.Fprint(w, text)
	}
}

// A fallback takes over even if it rejected its key for an earlier request. The gateway
// avoids that key as a precaution only, while the provider that the caller asked for has
// failed.
func TestAnAvoidedFallbackTakesOver(t *testing.T) {
	for _, tt := range []struct {
		name   string
		refuse int
		main   func(int, http.ResponseWriter, *http.Request) // nil means that no server listens
		asked  int                                           // requests to main for the first request
	}{
		{"after 503", 401, fails(503), 2},
		{"after 503, and its key is not paid", 402, fails(503), 2},
		{"after a wait that main asks for", 401, fails(503, "Retry-After", "60"), 1},
		{"after 429", 401, fails(429, "Retry-After", "2"), 1},
		{"after main's own key is refused", 401, fails(401), 1},
		{"when no server listens", 401, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				main, address := new(testServer), unreachableURL
				if tt.main != nil {
					main = newTestServer(t, tt.main)
					address = main.URL
				}
				spare := newTestServer(t, onPath("/secret", tt.refuse, "the spare"))
				r := newRig(t, []Spec{spec(t, "main", Generic, address, fallback("spare")), spec(t, "spare", Generic, spare.URL)})
				if got := r.get("/p/spare/secret"); got.code != tt.refuse {
					t.Fatalf("got %d %q", got.code, got.body)
				}
				if st := r.settled("spare"); !st.Keys[0].Refused {
					t.Fatalf("keys: %+v, want that the only one is avoided", st.Keys)
				}
				if got := r.get("/p/main/x"); got.body != "the spare" || main.count() != tt.asked {
					t.Errorf("got %d %q, and main was asked %d times, want the spare's answer after %d", got.code, got.body, main.count(), tt.asked)
				}
				if st := r.settled("spare"); st.State != Up || st.Keys[0].Refused {
					t.Errorf("the spare is %s, its keys %+v, want that its answer is the end of that", st.State, st.Keys)
				}
			})
		})
	}
}

// The gateway does not wait for a provider that is down while an avoided fallback has
// not been tried.
func TestAnAvoidedFallbackIsBetterThanAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main, spare := newTestServer(t, fails(503)), newTestServer(t, onPath("/secret", 401, "the spare"))
		r := newRig(t, []Spec{spec(t, "main", Generic, main.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL)})
		for range 4 { // its breaker opens
			if got := r.get("/p/main/x"); got.body != "the spare" {
				t.Fatalf("got %d %q", got.code, got.body)
			}
		}
		if st := r.settled("main"); st.State != Down {
			t.Fatalf("main is %s, want down", st.State)
		}
		if got := r.get("/p/spare/secret"); got.code != 401 {
			t.Fatalf("got %d %q", got.code, got.body)
		}
		before := main.count()
		if got := r.get("/p/main/x"); got.body != "the spare" || main.count() != before {
			t.Errorf("got %d %q after %d more requests to main, want the spare's answer at once", got.code, got.body, main.count()-before)
		}
	})
}

// A request tries a rejected key of a fallback once. It then makes the rest of its
// attempts at the provider that it asked for.
func TestAnAvoidedFallbackIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lifted atomic.Bool
		main := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if lifted.Load() {
				fmt.Fprint(w, "main")
				return
			}
			fails(503)(n, w, r)
		})
		spare := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			lifted.Store(true) // main is back after the fallback was tried
			fails(401)(n, w, r)
		})
		r := newRig(t, []Spec{spec(t, "main", Generic, main.URL, fallback("spare"), withoutBreaker), spec(t, "spare", Generic, spare.URL)})
		for i := range 3 {
			lifted.Store(false)
			if got := r.get("/p/main/x"); got.body != "main" || spare.count() != i+1 || main.count() != 3*(i+1) {
				t.Fatalf("request %d: %d %q after %d and %d requests", i+1, got.code, got.body, main.count(), spare.count())
			}
		}
	})
}
