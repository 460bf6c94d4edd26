package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// day is a Retry-After that is longer than any caller waits.
const day = "86400"

// limited is a provider that answers 429 to some requests.
type limited struct {
	*testServer
	mu     sync.Mutex
	closed func(path, body string) bool
}

func newLimited(t testing.TB, closed func(path, body string) bool, headers ...string) *limited {
	t.Helper()
	l := &limited{closed: closed}
	l.testServer = newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		body := l.requests()[n-1].body
		l.mu.Lock()
		refuse := l.closed(r.URL.Path, body)
		l.mu.Unlock()
		if refuse {
			fails(429, headers...)(n, w, r)
			return
		}
		fmt.Fprint(w, "done")
	})
	return l
}

// lift makes the provider accept all requests.
func (l *limited) lift() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = func(string, string) bool { return false }
}

// sent counts the requests for the path.
func (u *testServer) sent(path string) (n int) {
	for _, s := range u.requests() {
		if s.path == path {
			n++
		}
	}
	return n
}

func modelBody(model string) string {
	return `{"messages":[{"role":"user","content":"the \"model\": \"none\" } of it"}],"nested":{"model":"inner"},"model":"` + model + `"}`
}

// A 429 closes the key only for the route and the model of the request. All other requests
// are sent, however long the wait is and however often the provider asks for it.
func TestRetryAfterOfOnePathShutsNothingElse(t *testing.T) {
	for _, tt := range []struct {
		name        string
		closed      func(path, body string) bool
		path, body  string // requests that the provider throttles
		other, with string // requests that it does not throttle
		header      []string
		preset      string
		change      func(*Spec)
	}{
		{
			name: "one path", closed: func(path, _ string) bool { return path == "/a" },
			path: "/a", other: "/b", header: []string{"Retry-After", day}, preset: Generic,
		},
		{
			name: "one model of a path", closed: func(_, body string) bool { return strings.HasSuffix(body, `"big"}`) },
			path: "/v1/messages", body: modelBody("big"), other: "/v1/messages", with: modelBody("small"), header: []string{"Retry-After", day}, preset: Anthropic,
		},
		{
			name: "one model of bodies that are sent once", closed: func(_, body string) bool { return strings.HasSuffix(body, `"big"}`) },
			path: "/v1/messages", body: modelBody("big"), other: "/v1/messages", with: modelBody("small"), header: []string{"Retry-After", day}, preset: Anthropic,
			change: withPolicy(t, "fixed(1ms) attempts=1"),
		},
		{
			name: "one model in the query", closed: func(_, body string) bool { return body == "no" },
			path: "/v1/realtime?model=big", body: "no", other: "/v1/realtime?model=small", with: "yes", header: []string{"Retry-After", day}, preset: OpenAI,
		},
		{
			name: "an account that states its reset", closed: func(path, _ string) bool { return path == "/a" }, path: "/a", other: "/b",
			header: []string{"Retry-After", day, "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", day}, preset: Generic,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newLimited(t, tt.closed, tt.header...)
				r := newRig(t, []Spec{spec(t, "it", tt.preset, u.URL, func(s *Spec) {
					if s.IdempotencyKeys = true; tt.change != nil {
						tt.change(s)
					}
				})})
				for i := range 30 {
					if got := r.ask(http.MethodPost, "/p/it"+tt.path, tt.body, "Content-Type", "application/json"); got.code != 429 {
						t.Fatalf("request %d of what is throttled: %d %q", i, got.code, got.body)
					}
					if got := r.ask(http.MethodPost, "/p/it"+tt.other, tt.with, "Content-Type", "application/json"); got.body != "done" {
						t.Fatalf("request %d of what is not throttled: %d %q", i, got.code, got.body)
					}
				}
				if n := u.count(); n != 31 {
					t.Errorf("%d requests were sent, want 30 and the one that was throttled", n)
				}
				if st := r.settled("it"); st.Breaker != "closed" || len(st.Outages) != 0 {
					t.Errorf("breaker %s, outages %+v", st.Breaker, st.Outages)
				}
			})
		})
	}
}

// During a wait above a minute, one request a minute probes whether it is over. If the
// account states its reset, no request probes.
func TestOneRequestAMinuteProbesALongWait(t *testing.T) {
	for _, tt := range []struct {
		name    string
		headers []string
		body    string
		probes  int // number in ten minutes
	}{
		{"a day, for no stated reason", []string{"Retry-After", day}, "", 10},
		{"five minutes, then as long again", []string{"Retry-After", "300"}, "", 10},
		{"an account's own reset", []string{"Retry-After", day, "Anthropic-Ratelimit-Requests-Remaining", "0", "Anthropic-Ratelimit-Requests-Reset", "2000-01-04T00:00:00Z"}, "", 0},
		{"a reset before the wait is over", []string{"Retry-After", day, "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "4m30s"}, "", 2},
		{"quota that is gone", []string{"Retry-After", day}, noQuota, 0},
		{"an account that has requests left", []string{"Retry-After", day, "X-Ratelimit-Remaining", "5", "X-Ratelimit-Reset", day}, "", 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
					for i := 0; i+1 < len(tt.headers); i += 2 {
						w.Header().Set(tt.headers[i], tt.headers[i+1])
					}
					w.WriteHeader(429)
					fmt.Fprint(w, tt.body)
				})
				r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
				r.get("/p/it/a")
				for range 120 {
					time.Sleep(5 * time.Second)
					var callers sync.WaitGroup
					for range 2 {
						callers.Go(func() {
							if got := r.get("/p/it/a"); got.code != 429 {
								t.Errorf("got %d %q", got.code, got.body)
							}
						})
					}
					callers.Wait()
				}
				if n := u.count() - 1; n != tt.probes {
					t.Errorf("%d probes in ten minutes, want %d", n, tt.probes)
				}
			})
		})
	}
}

// A probe that succeeds ends the wait for all, and waiting requests are sent at once.
// Requests with a fallback fail over meanwhile.
func TestAProbeOpensWhatWasThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newLimited(t, func(path, _ string) bool { return path == "/a" }, "Retry-After", "110"), newTestServer(t, says("the spare"))
		longTimeout := withPolicy(t, "fixed(1ms) attempts=1 total-timeout=10m")
		r := newRig(t, []Spec{
			spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL), spec(t, "alone", Generic, u.URL, longTimeout),
		})
		for range 3 {
			if got := r.get("/p/main/a"); got.body != "the spare" {
				t.Fatalf("got %d %q, want the fallback", got.code, got.body)
			}
		}
		if n := u.sent("/a"); n != 1 {
			t.Fatalf("sent %d times, want once", n)
		}
		if got := r.get("/p/alone/a"); got.code != 429 {
			t.Fatalf("got %d, want the provider's 429", got.code)
		}
		began := time.Now()
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				if got := r.get("/p/alone/a"); got.body != "done" {
					t.Errorf("got %d %q", got.code, got.body)
				}
			})
		}
		eventually(t, "all wait", func() bool { return r.status("alone").Waiting == 5 })
		u.lift()
		callers.Wait()
		if d := time.Since(began); d < 59*time.Second || d > 61*time.Second {
			t.Errorf("waited %v, want until the probe after a minute", d)
		}
		if got := r.get("/p/main/a"); got.body != "done" {
			t.Errorf("got %d %q, want the provider itself", got.code, got.body)
		}
	})
}

// The status lists throttles by key, route and model. Metrics have no labels that callers
// choose.
func TestThrottlesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLimited(t, func(_, body string) bool { return strings.Contains(body, "big") }, "Retry-After", day)
		r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL, keys("one", "two"))})
		r.ask(http.MethodPost, "/p/it/v1/messages", modelBody("big"), "Content-Type", "application/json")
		st := r.settled("it")
		if len(st.Throttles) != 2 || st.State != Throttled || st.Since == nil || st.Why != "POST /v1/messages, model big: its keys were throttled (429)" {
			t.Fatalf("%s, %q, %+v", st.State, st.Why, st.Throttles)
		}
		x := st.Throttles[0]
		if x.Key != "key-1" || x.Route != "POST /v1/messages" || x.Model != "big" || x.Reason != "429" ||
			x.Until.Sub(time.Now()) < 86390*time.Second || x.NextProbe.Sub(time.Now()) > time.Minute {
			t.Errorf("%+v", x)
		}
		if n := samples(r.Gateway)[`throttled_routes{provider="it"}`]; n != float64(len(st.Throttles)) {
			t.Errorf("%v routes are throttled, want %d", n, len(st.Throttles))
		}
		if err := r.Control("it", Reset); err != nil {
			t.Fatal(err)
		}
		if st := r.status("it"); st.State != Up || len(st.Throttles) != 0 {
			t.Errorf("after a reset: %s, %+v", st.State, st.Throttles)
		}
	})
}

// A reload keeps the throttles of the keys that are still there.
func TestThrottlesSurviveAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLimited(t, func(path, _ string) bool { return path == "/a" }, "Retry-After", "300")
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, keys("one"))})
		r.get("/p/it/a")
		for _, list := range [][]string{{"one"}, {"one", "two"}} {
			if err := r.Reload([]Spec{spec(t, "it", Generic, u.URL, keys(list...))}); err != nil {
				t.Fatal(err)
			}
			if st := r.status("it"); len(st.Throttles) != 1 {
				t.Errorf("with %v: %+v", list, st.Throttles)
			}
		}
	})
}

// The gateway keeps a limited number of throttles, even if a provider throttles
// many routes and models.
func TestThrottlesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLimited(t, func(path, _ string) bool { return path != "/ok" }, "Retry-After", day)
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withoutBreaker, func(s *Spec) { s.IdempotencyKeys = true })})
		ask := func(i int) {
			r.ask(http.MethodPost, fmt.Sprintf("/p/it/r%s", strings.Repeat("x", i%100)), fmt.Sprintf(`{"model":"m-%d"}`, i), "Content-Type", "application/json")
		}
		for i := range 2 * maxThrottles {
			ask(i)
		}
		if n := len(r.status("it").Throttles); n != maxThrottles {
			t.Errorf("%d are remembered, want %d", n, maxThrottles)
		}
		if got := r.ask(http.MethodPost, "/p/it/ok", "{}"); got.body != "done" {
			t.Errorf("got %d %q", got.code, got.body)
		}
		if kept := len(r.table.Load().providers["it"].keys.throttles.waits); kept != maxThrottles {
			t.Errorf("%d are in memory, want %d", kept, maxThrottles)
		}
	})
}

func TestModelIn(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"model":"gpt-5"}`:                                         "gpt-5",
		modelBody("claude-opus-4@20260101"):                         "claude-opus-4@20260101",
		` { "a" : [ 1, {"model":"x"} ], "model" : "org\/m:free" } `: "org/m:free",
		`{"model":5}`: "",
		`{"model":"` + strings.Repeat("x", 200) + `"}`: "",
		`{"model":"a b"}`:            "",
		`{"model":"cut`:              "",
		`{"a":"\"model\":\"x\""}`:    "",
		`[{"model":"x"}]`:            "",
		``:                           "",
		`{"a":"x\\","model":"good"}`: "good",
	} {
		if got := modelIn([]byte(body)); got != want {
			t.Errorf("modelIn(%s) = %q, want %q", body, got, want)
		}
	}
}

func FuzzModelIn(f *testing.F) {
	for _, s := range []string{`{"model":"x"}`, modelBody("y"), `{"a":[{}],"model":"z"`, `{"\u006dodel":"x"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := modelIn(body)
		var want struct {
			Model any `json:"model"`
		}
		if got != "" && json.Unmarshal(body, &want) == nil && want.Model == nil {
			t.Errorf("modelIn(%q) = %q", body, got)
		}
	})
}
