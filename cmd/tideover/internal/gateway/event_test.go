package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tideover/tideover/retry"
)

// A move that needs no wait is told as a move, or not at all.
func TestMovesAreNoWaits(t *testing.T) {
	u, spare := newUpstream(t, byKey(map[string]int{"one": 401, "two": 429})), newUpstream(t, says("the spare"))
	r := newRig(t, []Spec{
		spec(t, "main", Anthropic, u.URL, keys("one", "two"), fallback("spare")), spec(t, "spare", Anthropic, spare.URL),
	})
	if got := r.ask(http.MethodPost, "/p/main/x", chat); got.body != "the spare" {
		t.Fatalf("got %d %q", got.code, got.body)
	}
	st := r.settled("main")
	if n := r.kinds(retry.Waiting); n != 0 || strings.Contains(r.told(), "schedule") {
		t.Errorf("%d waits are told: %s", n, r.told())
	}
	if r.kinds(retry.FailedOver) != 1 || st.Totals.Retries != 2 {
		t.Errorf("%d failovers are told, %+v", r.kinds(retry.FailedOver), st.Totals)
	}
}

// A failover belongs to the provider that was asked for, whichever was left.
func TestWhoseFailoverItIs(t *testing.T) {
	a, b, c := newUpstream(t, fails(503)), newUpstream(t, fails(503)), newUpstream(t, says("the last"))
	r := newRig(t, []Spec{
		spec(t, "a", Generic, a.URL, fallback("b", "c"), withPolicy(t, "fixed(1ms) attempts=6"), patient),
		spec(t, "b", Generic, b.URL, patient), spec(t, "c", Generic, c.URL),
		spec(t, "d", Generic, nobody, fallback("b", "c"), withPolicy(t, "fixed(1ms) attempts=6"), patient),
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
	all := samples(t, r.Gateway)
	for pair, n := range map[string]float64{
		`from="a",to="b"`: 1, `from="a",to="c"`: 0, `from="b",to="c"`: 2, `from="d",to="b"`: 1,
	} {
		if got, ok := all["failovers_total{"+pair+"}"]; !ok || got != n {
			t.Errorf("failovers_total{%s} is %v (there: %v), want %v", pair, got, ok, n)
		}
	}
}
