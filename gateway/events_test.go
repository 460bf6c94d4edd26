package gateway

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/retry"
)

// A request that moves to another key or provider without a wait causes no Waiting event.
func TestMovesAreNoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, byKey(map[string]int{"one": 401, "two": 429})), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, u.URL, keys("one", "two"), fallback("spare")), spec(t, "spare", Anthropic, spare.URL),
		})
		if got := r.ask(http.MethodPost, "/p/main/x", chat); got.body != "the spare" {
			t.Fatalf("got %d %q", got.code, got.body)
		}
		st := r.settled("main")
		if n := r.kinds(retry.Waiting); n != 0 || strings.Contains(r.output(), "schedule") {
			t.Errorf("%d Waiting events, want none: %s", n, r.output())
		}
		if r.kinds(retry.FailedOver) != 1 || st.Totals.Retries != 2 {
			t.Errorf("%d FailedOver events, want 1; %+v", r.kinds(retry.FailedOver), st.Totals)
		}
	})
}

// All lines of the log about a request identify it by method, host and path,
// without identifiers in the path and without the query.
func TestTheLogSaysWhichRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, spare := newTestServer(t, fails(503)), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", Generic, u.URL, fallback("spare"), withoutBreaker), spec(t, "spare", Generic, spare.URL),
			spec(t, "alone", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2"), withoutBreaker),
		})
		first := r.get("/p/main/v1/files/file-0a1b2c3d4e5f?key=hush").header.Get(headerCall)
		second := r.get("/p/alone/v1/sk-alone-secret-1/x").header.Get(headerCall)
		r.settled("alone")
		at := strings.TrimPrefix(u.URL, "http://")
		for _, want := range []string{
			`msg=attempt-failed name=gateway/main call=` + first + ` attempt=1 note="GET ` + at + `/v1/files/{id}"`,
			`msg=waiting name=gateway/main call=` + first + ` attempt=1 delay=5ms by=policy note="GET ` + at + `/v1/files/{id}"`,
			`msg=failed-over name=gateway/main call=` + first + ` note="main → spare: 503" request="GET /v1/files/{id}"`,
			`msg=gave-up name=gateway/alone call=` + second + ` attempt=2 reason=attempts note="GET ` + at + `/v1/***/x"`,
		} {
			if !strings.Contains(r.output(), want) {
				t.Errorf("the log lacks %s\n%s", want, r.output())
			}
		}
		if strings.Contains(r.output(), "hush") {
			t.Error("the log or an event has the query")
		}
	})
}

// If the gateway does not retry a request, the response tells the caller which setting
// would allow it.
func TestNotRetriedSaysWhatHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) { hijack(w, "") })
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		got := r.ask(http.MethodPost, "/p/it/x", "{}")
		if code := got.errorCode(t); code != codeNotSent || !strings.Contains(got.body, "is not idempotent (give it an Idempotency-Key, or set retry-posts or repeatable)") ||
			strings.Contains(got.body, "permanent") || strings.Contains(got.body, "WithIdempotent") {
			t.Errorf("%s: %s", code, got.body)
		}
	})
}

// A failover counts for the provider that was asked for, whichever provider was left.
func TestWhoseFailoverItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newTestServer(t, fails(503)), newTestServer(t, fails(503)), newTestServer(t, says("the last"))
		r := newRig(t, []Spec{
			spec(t, "a", Generic, a.URL, fallback("b", "c"), withPolicy(t, "fixed(1ms) attempts=6"), withoutBreaker),
			spec(t, "b", Generic, b.URL, withoutBreaker), spec(t, "c", Generic, c.URL),
			spec(t, "d", Generic, unreachableURL, fallback("b", "c"), withPolicy(t, "fixed(1ms) attempts=6"), withoutBreaker),
		})
		for _, name := range []string{"a", "d"} {
			if got := r.get("/p/" + name + "/x"); got.body != "the last" {
				t.Fatalf("%s: %d %q", name, got.code, got.body)
			}
		}
		for name, want := range map[string]Totals{
			"a": {Requests: 1, Attempts: 2, Sent: 5, Failovers: 2},
			"b": {Attempts: 4}, "c": {Attempts: 2},
			"d": {Requests: 1, Attempts: 2, Sent: 5, Failovers: 2},
		} {
			st := r.settled(name)
			n := st.Totals
			if (Totals{Requests: n.Requests, Attempts: n.Attempts, Sent: n.Sent, Failovers: n.Failovers}) != want || len(st.Failovers) != int(want.Failovers) {
				t.Errorf("%s: %+v, %v, want %+v", name, n, st.Failovers, want)
			}
		}
		all := samples(r.Gateway)
		for pair, n := range map[string]float64{
			`from="a",to="b"`: 1, `from="a",to="c"`: 0, `from="b",to="c"`: 2, `from="d",to="b"`: 1,
		} {
			if got, ok := all["failovers_total{"+pair+"}"]; !ok || got != n {
				t.Errorf("failovers_total{%s} is %v (there: %v), want %v", pair, got, ok, n)
			}
		}
	})
}
