package gateway

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// accountLog is an [Accounts] that records the calls of the gateway.
type accountLog struct {
	mu      sync.Mutex
	limited []KeyLimit
	worked  []int64
	used    []QuotaWindow
}

func (a *accountLog) Limited(l KeyLimit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limited = append(a.limited, l)
}

func (a *accountLog) Worked(_ string, serial int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.worked = append(a.worked, serial)
}

func (a *accountLog) Used(_ string, windows []QuotaWindow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = windows
}

func (a *accountLog) limits() []KeyLimit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]KeyLimit(nil), a.limited...)
}

func (a *accountLog) ended() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]int64(nil), a.worked...)
}

// withAccount makes the first key of a provider share the account.
func withAccount(name string) func(*Spec) { return func(s *Spec) { s.Keys[0].Account = name } }

// newAccountRig returns a gateway with accounts, and their log.
func newAccountRig(t testing.TB, specs ...Spec) (*rig, *accountLog) {
	t.Helper()
	log := new(accountLog)
	return newRig(t, specs, func(o *Options) { o.Accounts = log }), log
}

// Only limits of the whole account that last longer than a minute are reported.
func TestWhichAnswersLimitAnAccount(t *testing.T) {
	t.Parallel()
	const hours, status, claim = "7200", "Anthropic-Ratelimit-Unified-Status", "Anthropic-Ratelimit-Unified-Representative-Claim"
	const reset, weekly = "Anthropic-Ratelimit-Unified-Reset", "Anthropic-Ratelimit-Unified-7d-Status"
	for _, tt := range []struct {
		name    string
		code    int
		headers []string
		body    string
		want    time.Duration // 0 means that no limit is reported
		route   string
	}{
		{name: "a long wait", code: 429, headers: []string{"Retry-After", hours}, want: 2 * time.Hour},
		{name: "a short wait", code: 429, headers: []string{"Retry-After", "60"}},
		{name: "no time", code: 429},
		{name: "nothing is left", code: 429, headers: []string{"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "2h"}, want: 2 * time.Hour, route: "POST /v1/messages"},
		{name: "a subscription", code: 429, headers: []string{status, "rejected", claim, "five_hour", reset, hours}, want: 2 * time.Hour, route: "POST /v1/messages"},
		{name: "a subscription with a shorter wait", code: 429, headers: []string{"Retry-After", "30", status, "rejected", reset, hours}, want: 2 * time.Hour, route: "POST /v1/messages"},
		{
			name: "the latest window of a subscription", code: 429,
			headers: []string{status, "rejected", claim, "five_hour", reset, hours, weekly, "rejected", "Anthropic-Ratelimit-Unified-7d-Reset", "86400"},
			want:    24 * time.Hour, route: "POST /v1/messages",
		},
		{name: "a model of a subscription", code: 429, headers: []string{"Retry-After", hours, status, "rejected", claim, "seven_day_opus", reset, hours}},
		{name: "a subscription that is not used up", code: 429, headers: []string{"Retry-After", "5", status, "allowed_warning", reset, hours}},
		{name: "quota that is gone", code: 429, headers: []string{"Retry-After", hours}, body: `{"error":{"code":"insufficient_quota"}}`, want: 2 * time.Hour, route: "POST /v1/messages"},
		{name: "quota that is gone for an unknown time", code: 429, body: `{"error":{"code":"insufficient_quota"}}`},
		{name: "unpaid", code: 402, headers: []string{"Retry-After", hours}, want: 2 * time.Hour},
		{name: "a key that is not wanted", code: 401, headers: []string{"Retry-After", hours}},
		{name: "a provider that is busy", code: 503, headers: []string{"Retry-After", hours}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
					for i := 0; i+1 < len(tt.headers); i += 2 {
						w.Header().Set(tt.headers[i], tt.headers[i+1])
					}
					w.Header()["Date"] = nil
					w.WriteHeader(tt.code)
					fmt.Fprint(w, tt.body)
				})
				r, log := newAccountRig(t, spec(t, "it", Anthropic, u.URL, withAccount("a"), withPolicy(t, "fixed(1ms) attempts=1")))
				began := time.Now()
				if got := r.ask(http.MethodPost, "/p/it/v1/messages", modelBody("m"), "Content-Type", "application/json"); got.code != tt.code {
					t.Errorf("the answer: %d %s", got.code, got.body)
				}
				got := log.limits()
				if tt.want == 0 {
					if len(got) > 0 {
						t.Errorf("reported: %+v", got)
					}
					return
				}
				if len(got) != 1 || got[0].Account != "a" || got[0].Provider != "it" || got[0].Key != "key-1" || got[0].Route != tt.route || !strings.HasPrefix(got[0].Why, fmt.Sprint(tt.code)) {
					t.Fatalf("reported: %+v", got)
				}
				if wait := got[0].Until.Sub(began); wait < tt.want || wait > tt.want+time.Second {
					t.Errorf("until %v, want %v", wait, tt.want)
				}
			})
		})
	}
}

// A key is not used until the limit of its account ends. A waiting request continues if the limit ends early.
func TestAKeyIsHeldByItsAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, other := newTestServer(t, says("done")), newTestServer(t, says("other"))
		r, log := newAccountRig(t,
			spec(t, "two", Anthropic, u.URL, keys("held", "free"), withAccount("a")),
			spec(t, "one", Anthropic, u.URL, keys("held"), withAccount("a"), fallback("spare")),
			spec(t, "alone", Anthropic, u.URL, keys("held"), withAccount("a"), withPolicy(t, "fixed(1ms) attempts=2 total-timeout=1h server-wait=10m")),
			spec(t, "spare", Anthropic, other.URL))
		limit := &AccountLimit{Serial: 7, Until: time.Now().Add(time.Hour), Why: "account a is limited until then, said by session s"}
		r.SetAccountLimit("a", limit)
		for range 5 {
			if got := r.get("/p/two/x"); got.body != "done" {
				t.Errorf("with another key: %d %s", got.code, got.body)
			}
		}
		for _, s := range u.requests() {
			if key := s.header.Get("X-Api-Key"); key != "free" {
				t.Errorf("the key %s was used", key)
			}
		}
		if got := r.get("/p/one/x"); got.body != "other" {
			t.Errorf("with a fallback: %d %s", got.code, got.body)
		}
		got := r.get("/p/alone/x")
		if got.code != 429 || got.errorCode(t) != "keys_cooling" || got.header.Get("Retry-After") != "3600" || !strings.Contains(got.body, "account a is limited") || strings.Contains(got.body, "session") {
			t.Errorf("without either: %d, Retry-After %s: %s", got.code, got.header.Get("Retry-After"), got.body)
		}
		st := r.settled("alone")
		if st.State != Throttled || st.Why != "its keys wait: "+limit.Why || len(st.Throttles) != 1 || st.Throttles[0].Account != "a" || st.Throttles[0].Reason != limit.Why || st.Keys[0].Account != "a" {
			t.Errorf("status: %s, %q, %+v", st.State, st.Why, st.Throttles)
		}
		if st := r.settled("two"); st.State != Up || len(st.Throttles) != 1 {
			t.Errorf("with another key it is %s, %+v", st.State, st.Throttles)
		}
		if st := r.settled("one"); len(st.Failovers) != 1 || st.Failovers[0].Why != "account a is limited on all keys" {
			t.Errorf("failovers: %+v", st.Failovers)
		}

		time.Sleep(55 * time.Minute) // the rest is shorter than the longest wait of a request
		answer := make(chan reply)
		go func() { answer <- r.get("/p/alone/x") }()
		synctest.Wait()
		sent, over := u.count(), time.Now()
		r.SetAccountLimit("a", nil)
		if got := <-answer; got.body != "done" || u.count() != sent+1 || time.Since(over) > time.Second {
			t.Errorf("%v after the limit was over: %d %s", time.Since(over), got.code, got.body)
		}
		r.SetAccountLimit("a", &AccountLimit{Serial: 8, Until: time.Now().Add(time.Hour)})
		time.Sleep(time.Hour + time.Second)
		if got := r.get("/p/alone/x"); got.body != "done" {
			t.Errorf("after the end: %d %s", got.code, got.body)
		}
		if got := log.ended(); len(got) != 0 {
			t.Errorf("GET showed that limits are over: %v", got)
		}
		r.SetAccountLimit("a", &AccountLimit{Serial: 9}) // the end is unknown, so the key is used
		if got := r.ask(http.MethodPost, "/p/alone/v1/messages/count_tokens", "{}"); got.body != "done" {
			t.Errorf("a limit without an end: %d %s", got.code, got.body)
		}
		if got := log.ended(); len(got) != 0 {
			t.Errorf("a count of tokens showed that limits are over: %v", got)
		}
		for range 2 {
			if got := r.ask(http.MethodPost, "/p/alone/v1/messages", "{}"); got.body != "done" {
				t.Errorf("a limit without an end: %d %s", got.code, got.body)
			}
		}
		if got := log.ended(); !reflect.DeepEqual(got, []int64{9}) {
			t.Errorf("reported as over: %v", got)
		}
		// A limit that was stated on one route ends when that route succeeds.
		r.SetAccountLimit("a", &AccountLimit{Serial: 10, Until: time.Now().Add(time.Hour), Provider: "alone", Key: "key-1", Route: "POST /v1/messages"})
		r.ask(http.MethodPost, "/p/alone/v1/embeddings", "{}")
		if got := log.ended(); len(got) != 1 {
			t.Errorf("another route showed that the limit is over: %v", got)
		}
		r.ask(http.MethodPost, "/p/alone/v1/messages", "{}")
		if got := log.ended(); !reflect.DeepEqual(got, []int64{9, 10}) {
			t.Errorf("reported as over: %v", got)
		}
	})
}

// After a limit, the key waits for the route and the model alone. A success with another model shows that the limit was
// not the account's, and the gateway does not report it again.
func TestASuccessEndsTheLimitOfAnAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newLimited(t, func(_, body string) bool { return strings.HasSuffix(body, `"big"}`) }, "Retry-After", day)
		r, log := newAccountRig(t, spec(t, "it", Anthropic, u.URL, withAccount("a"), withPolicy(t, "fixed(1ms) attempts=1")))
		ask := func(model string) int {
			return r.ask(http.MethodPost, "/p/it/v1/messages", modelBody(model), "Content-Type", "application/json").code
		}
		if code := ask("big"); code != 429 || len(log.limits()) != 1 {
			t.Fatalf("%d, reported %+v", code, log.limits())
		}
		l := log.limits()[0]
		r.SetAccountLimit("a", &AccountLimit{Serial: 3, Until: l.Until, Provider: l.Provider, Key: l.Key, Route: l.Route})
		if code := ask("small"); code != 200 || !reflect.DeepEqual(log.ended(), []int64{3}) {
			t.Errorf("another model: %d, reported as over: %v", code, log.ended())
		}
		r.SetAccountLimit("a", nil)
		time.Sleep(2 * time.Minute)
		if code, n := ask("big"), u.count(); code != 429 || n != 3 || len(log.limits()) != 1 {
			t.Errorf("a probe of the model: %d, %d requests, reported %+v", code, n, log.limits())
		}
	})
}

// A request that was sent before the limit was learned does not end the limit.
func TestARequestFromBeforeALimitShowsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			<-release
			fmt.Fprint(w, "done")
		})
		r, log := newAccountRig(t, spec(t, "it", Anthropic, u.URL, withAccount("a")))
		answer := make(chan reply)
		go func() { answer <- r.ask(http.MethodPost, "/p/it/v1/messages", "{}") }()
		synctest.Wait()
		time.Sleep(time.Second)
		r.SetAccountLimit("a", &AccountLimit{Serial: 1, Until: time.Now().Add(time.Hour)})
		close(release)
		if got := <-answer; got.body != "done" {
			t.Errorf("the answer: %d %s", got.code, got.body)
		}
		if got := log.ended(); len(got) != 0 {
			t.Errorf("reported as over: %v", got)
		}
	})
}

// A limit survives a reload, and so does an operator's reset of it.
func TestALimitOfAnAccountAndReloads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("done"))
		plain := spec(t, "it", Anthropic, u.URL, withPolicy(t, "fixed(1ms) attempts=1"))
		shared := spec(t, "it", Anthropic, u.URL, withPolicy(t, "fixed(1ms) attempts=1"), withAccount("a"))
		r, _ := newAccountRig(t, plain)
		reload := func(specs ...Spec) {
			if err := r.Reload(specs); err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, code int) {
			t.Helper()
			if got := r.get("/p/it/x"); got.code != code {
				t.Errorf("%s: %d %s", when, got.code, got.body)
			}
		}
		limit := func() *AccountLimit { return &AccountLimit{Serial: 1, Until: time.Now().Add(time.Hour), Why: "why"} }
		r.SetAccountLimit("a", limit())
		want("before the key names the account", 200)
		reload(shared)
		want("after a reload that names it", 429)
		reload(shared, spec(t, "more", Anthropic, u.URL))
		want("after another reload", 429)
		if err := r.Control("it", Reset); err != nil {
			t.Fatal(err)
		}
		want("after a reset by hand", 200)
		r.SetAccountLimit("a", limit())
		reload(shared)
		want("after the same limit was seen again", 200)
		r.SetAccountLimit("a", &AccountLimit{Serial: 2, Until: time.Now().Add(time.Hour)})
		want("after another limit", 429)
		reload(plain)
		want("after a reload without the account", 200)
	})
}

func TestQuotasInHeaders(t *testing.T) {
	t.Parallel()
	now := time.Unix(1790000000, 0)
	h := http.Header{}
	for name, value := range map[string]string{
		"anthropic-ratelimit-unified-5h-utilization": "0.91", "anthropic-ratelimit-unified-5h-reset": "1790001000",
		"anthropic-ratelimit-unified-7d-utilization": "1.04", "anthropic-ratelimit-unified-7d-reset": "1790100000",
		"anthropic-ratelimit-unified-7d_oi-utilization": "0.5", "anthropic-ratelimit-unified-7d_oi-reset": "1790100000",
		"x-ratelimit-limit": "200", "x-ratelimit-remaining": "50", "x-ratelimit-reset": "7200",
	} {
		h.Set(name, value)
	}
	want := []QuotaWindow{
		{Name: "5-hour", Used: 91, Resets: now.Add(1000 * time.Second), Long: true}, {Name: "weekly", Used: 104, Resets: now.Add(100000 * time.Second), Long: true},
		{Name: "requests", Used: 75, Resets: now.Add(2 * time.Hour)},
	}
	if got := quotaWindows(h, now); !reflect.DeepEqual(got, want) {
		t.Errorf("quotaWindows() = %+v, want %+v", got, want)
	}
	for _, bad := range []string{"", "-1", "NaN", "1e9", "x"} {
		h := http.Header{"Anthropic-Ratelimit-Unified-5h-Utilization": {bad}, "Anthropic-Ratelimit-Unified-5h-Reset": {"1790001000"}, "X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Limit": {"0"}}
		if got := quotaWindows(h, now); len(got) > 0 {
			t.Errorf("utilization %q: %+v", bad, got)
		}
	}
}
