package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// With one key and no fallback, the gateway makes one attempt.
func TestInsideOneAttemptIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			switch n {
			case 1:
				fails(503)(n, w, r)
			case 2:
				fails(429, "Retry-After", "300")(n, w, r)
			default:
				fmt.Fprint(w, "ok")
			}
		})
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL+"/base")})
		c := &http.Client{Transport: r.RoundTripper("it")}
		for i, want := range []int{503, 429} {
			resp, err := c.Post(u.URL+"/base/v1/x", "text/plain", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || u.count() != i+1 {
				t.Errorf("got %d after %d requests, want %d after %d", resp.StatusCode, u.count(), want, i+1)
			}
		}
		if s := u.requests()[0]; s.path != "/base/v1/x" || s.header.Get("X-Api-Key") != "sk-it-secret-1" || s.body != "body" {
			t.Errorf("sent %+v", s)
		}
		// Its key is throttled, so the gateway throttles the next request without sending it.
		_, err := c.Post(u.URL+"/base/v1/x", "text/plain", strings.NewReader("body"))
		o := retry.OutcomeOf(err)
		if err == nil || o.Class != retry.ClassThrottled || o.After < 290*time.Second || u.count() != 2 {
			t.Errorf("got %v, %+v, want throttled with After = 300s", err, o)
		}
		if err := r.Control("it", Reset); err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(&http.Request{Method: http.MethodGet, URL: mustURL(t, "http://x")})
		if err == nil {
			resp.Body.Close()
			t.Error("a URL of another host is sent")
		}
		req, _ := http.NewRequest(http.MethodGet, "/v1/y?z=1", nil)
		resp, err = r.RoundTripper("it").RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if s := u.requests()[2]; string(text) != "ok" || s.path != "/base/v1/y" || s.query != "z=1" {
			t.Errorf("got %q from %s?%s", text, s.path, s.query)
		}
		st := r.settled("it")
		if st.Totals.Requests != 4 || st.Totals.Retries != 0 || st.Totals.Succeeded != 1 || st.Totals.Failed != 3 || st.InFlight != 0 {
			t.Errorf("totals: %+v", st.Totals)
		}
	})
}

func TestInsideErrorsAreThoseOfTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []Spec{spec(t, "it", Anthropic, unreachableURL)})
		req, _ := http.NewRequest(http.MethodPost, "/x", strings.NewReader("body"))
		_, err := r.RoundTripper("it").RoundTrip(req)
		if o := retry.OutcomeOf(err); err == nil || o.Class != retry.ClassTransient || o.Final {
			t.Errorf("got %v, %+v, want a failure that may pass", err, o)
		}
		if _, ok := errors.AsType[*retry.Error](err); ok {
			t.Errorf("%v: the one attempt is all there was", err)
		}
		_, err = r.RoundTripper("that").RoundTrip(req)
		if o := retry.OutcomeOf(err); !errors.Is(err, ErrUnknownProvider) || o.Class != retry.ClassPermanent {
			t.Errorf("got %v, %+v", err, o)
		}
		for _, address := range []string{"/a/../b", "ftp://x/y"} {
			req, _ := http.NewRequest(http.MethodGet, address, nil)
			if _, err := r.RoundTripper("it").RoundTrip(req); retry.OutcomeOf(err).Class != retry.ClassPermanent {
				t.Errorf("%s: %v, want a failure that stays", address, err)
			}
		}
	})
}

// If the gateway knows that the first provider would fail, it uses the fallback for the
// first attempt.
func TestInsideFallbacksTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, says("main")), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL)})
		if err := r.Control("main", Open); err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequest(http.MethodGet, "/x", nil)
		resp, err := r.RoundTripper("main").RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); string(text) != "the spare" {
			t.Errorf("got %q", text)
		}
	})
}

// step makes the attempt of a workflow step: a POST that may be sent twice. It returns the
// answer, and the error that the step would get.
func step(t *testing.T, r *rig, name string) (reply, error) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(chat))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "run/step")
	resp, err := r.RoundTripper(name).RoundTrip(req)
	if err != nil {
		return reply{err: err}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text), err}, retryhttp.Check(resp)
}

// slowly is a policy with waits so long that a test would notice one.
const slowly = "fixed(1h) attempts=9 attempt-timeout=20s"

// The gateway makes all attempts that need no wait within one attempt of a step.
func TestInsideMovesThatNeedNoWait(t *testing.T) {
	hang := func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, tt := range []struct {
		name string
		main func(int, http.ResponseWriter, *http.Request) // nil means that no server listens
		keys []string
		want string
		sent int // greatest number of requests to main
	}{
		{"a key is refused", byKey(map[string]int{"one": 401}), []string{"one", "two"}, "with two", 2},
		{"a key is not paid", byKey(map[string]int{"one": 402}), []string{"one", "two"}, "with two", 2},
		{"a key may not", byKey(map[string]int{"one": 403}), []string{"one", "two"}, "with two", 2},
		{"a key is throttled", byKey(map[string]int{"one": 429}, "Retry-After", "60"), []string{"one", "two"}, "with two", 2},
		{"all but the last are refused", byKey(map[string]int{"one": 401, "two": 403, "three": 429}), []string{"one", "two", "three", "four"}, "with four", 4},
		{"it answers with 503", fails(503), []string{"one", "two"}, "the spare", 1},
		{"it wants to be left alone", fails(503, "Retry-After", "60"), []string{"one"}, "the spare", 1},
		{"it hangs", hang, []string{"one"}, "the spare", 1},
		{"no server listens", nil, []string{"one"}, "the spare", 0},
		{"all its keys are refused", fails(401), []string{"one", "two", "three"}, "the spare", 3},
		{"all its keys were throttled", fails(429, "Retry-After", "60"), []string{"one", "two"}, "the spare", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u, address := new(testServer), unreachableURL
				if tt.main != nil {
					u = newTestServer(t, tt.main)
					address = u.URL
				}
				spare := newTestServer(t, says("the spare"))
				policy := slowly
				if tt.name == "it hangs" {
					policy = strings.Replace(slowly, "20s", "500ms", 1)
				}
				for range 4 { // keys are chosen at random
					before := u.count()
					r := newRig(t, []Spec{
						spec(t, "main", Anthropic, address, keys(tt.keys...), fallback("spare"), withPolicy(t, policy)),
						spec(t, "spare", Anthropic, spare.URL),
					})
					got, err := step(t, r, "main")
					if err != nil || got.body != tt.want {
						t.Fatalf("got %d %q, %v, want %q", got.code, got.body, err, tt.want)
					}
					from := "main"
					if tt.want == "the spare" {
						from = "spare"
					}
					if h := got.header.Get("X-Tideover-Provider"); h != from {
						t.Errorf("the answer is said to be from %q, want %q", h, from)
					}
					if n := u.count() - before; n > tt.sent {
						t.Errorf("main was asked %d times, want at most %d", n, tt.sent)
					}
					st := r.settled("main")
					if st.Totals.Succeeded != 1 || st.InFlight != 0 || r.traffic.count() != 0 {
						t.Errorf("totals: %+v", st.Totals)
					}
					if n := r.kinds(retry.Waiting); n != 0 {
						t.Errorf("%d Waiting events, want none: the gateway did not wait", n)
					}
				}
			})
		})
	}
}

// A failure states when to try again, from the state of all keys and providers.
func TestInsideFailuresKnowWhatTheyMean(t *testing.T) {
	// The waits of the two keys, which are tried in any order.
	times := func(one, two string) func(int, http.ResponseWriter, *http.Request) {
		return func(n int, w http.ResponseWriter, r *http.Request) {
			after := one
			if r.Header.Get("X-Api-Key") == "two" {
				after = two
			}
			if after == "" {
				fails(401)(n, w, r)
				return
			}
			fails(429, "Retry-After", after)(n, w, r)
		}
	}
	quota := func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(429)
		fmt.Fprint(w, noQuota)
	}
	for _, tt := range []struct {
		name        string
		main, spare func(int, http.ResponseWriter, *http.Request) // spare nil means that there is none
		after       time.Duration                                 // approximately
		class       retry.Class
		code        int // status of the answer; 0 means an error
	}{
		{"both keys are throttled", times("300", "40"), nil, 40 * time.Second, retry.ClassThrottled, 429},
		{"both keys are refused", fails(401), nil, 0, retry.ClassPermanent, 401},
		{"both keys may not", fails(403), nil, 0, retry.ClassPermanent, 403},
		{"both keys have no quota", quota, nil, 0, retry.ClassPermanent, 429},
		{"one is refused, the other throttled", times("", "40"), nil, 40 * time.Second, retry.ClassThrottled, 429},
		{"the keys of both providers are refused", fails(401), fails(401), 0, retry.ClassPermanent, 401},
		{"refused here, throttled there", fails(401), fails(429, "Retry-After", "40"), 40 * time.Second, retry.ClassThrottled, 429},
		{"throttled here, refused there", fails(429, "Retry-After", "40"), fails(401), 40 * time.Second, retry.ClassThrottled, 429},
		{"throttled here, failing there", fails(429, "Retry-After", "40"), fails(503), 0, retry.ClassTransient, 503},
		{"failing here, throttled there", fails(503), fails(429, "Retry-After", "40"), 0, retry.ClassThrottled, 429},
		{"failing here, refused there", fails(503), fails(401), 0, retry.ClassTransient, 503},
		{"a plain no", fails(400), fails(500), 0, retry.ClassPermanent, 400},
		{"both break off", breaksOffAlways, breaksOffAlways, 0, retry.ClassTransient, 0},
		{"failing here, unreachable there", fails(503), nil, 0, retry.ClassTransient, 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for range 4 { // keys are chosen at random
					u := newTestServer(t, tt.main)
					specs := []Spec{spec(t, "main", Anthropic, u.URL, keys("one", "two"), withPolicy(t, slowly))}
					most := 2
					spare := new(testServer)
					if tt.spare != nil {
						spare = newTestServer(t, tt.spare)
						specs[0].Fallback = []string{"spare"}
						specs = append(specs, spec(t, "spare", Anthropic, spare.URL))
						most++
					}
					r := newRig(t, specs)
					got, err := step(t, r, "main")
					if err == nil {
						t.Fatalf("got %d %q, want a failure", got.code, got.body)
					}
					o := retry.OutcomeOf(err)
					if got.code != tt.code || o.Class != tt.class || o.Final {
						t.Errorf("got %d, %+v, want %d, %v: %v", got.code, o, tt.code, tt.class, err)
					}
					if o.After > tt.after || o.After < tt.after-2*time.Second {
						t.Errorf("After = %v, want %v", o.After, tt.after)
					}
					if n := u.count() + spare.count(); n > most {
						t.Errorf("%d attempts, want no more than there are keys", n)
					}
					if r.traffic.count() != 0 {
						t.Error("the request is still under way")
					}
				}
			})
		})
	}
}

func breaksOffAlways(_ int, w http.ResponseWriter, _ *http.Request) { hijack(w, "") }

// If the key is rejected while a fallback is down, the caller may try again.
func TestInsideAFallbackThatIsDownIsHope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, fails(401)), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, u.URL, fallback("spare")),
			spec(t, "spare", Anthropic, spare.URL, func(s *Spec) { s.OpenFor = 30 * time.Second }),
		})
		takeDown(r, "spare")
		got, err := step(t, r, "main")
		if o := retry.OutcomeOf(err); got.code != 401 || o.Class != retry.ClassTransient || o.After < 20*time.Second {
			t.Errorf("got %d, %v, %+v, want a retry at the time of the next probe", got.code, err, o)
		}
	})
}

// A request that must not be processed twice is sent once.
func TestInsideWhatMayNotBeSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, breaksOffAlways), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL)})
		req, _ := http.NewRequest(http.MethodPost, "/x", strings.NewReader(chat))
		_, err := r.RoundTripper("main").RoundTrip(req)
		if o := retry.OutcomeOf(err); !errors.Is(err, retryhttp.ErrNotIdempotent) || !o.Final || spare.count() != 0 {
			t.Errorf("got %v, %+v after %d requests to the fallback", err, o, spare.count())
		}
	})
}

// An error names all providers that were tried.
func TestInsideErrorsNameBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []Spec{spec(t, "main", Anthropic, unreachableURL, fallback("spare")), spec(t, "spare", Anthropic, unreachableURL)})
		_, err := step(t, r, "main")
		if err == nil || !strings.Contains(err.Error(), "provider main: dial") || !strings.Contains(err.Error(), "; fallback spare: dial") {
			t.Errorf("got %v", err)
		}
		if gave := giveUps(r, "main"); gave["attempts"] != 1 {
			t.Errorf("given up: %v", gave)
		}
	})
}
