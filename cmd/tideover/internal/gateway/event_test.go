package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// Under load one line in a while says what happens, and how often.
func TestTheLogIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		g := &Gateway{log: slog.New(slog.NewTextHandler(&b, nil))}
		say := func(kind retry.EventKind, name, note string, by retry.Source) {
			g.emit(retry.Event{Kind: kind, Name: name, Note: note, By: by, Delay: time.Second, Err: fmt.Errorf("port %d", b.Len())})
		}
		for range 100 {
			say(retry.FailedOver, "gateway/a", "a → b: 503", 0)
			say(retry.FailedOver, "gateway/a", "a → b: down", 0)
			say(retry.FailedOver, "gateway/c", "c → b: 503", 0)
			say(retry.Waiting, "gateway/a", "", retry.ByServer)
		}
		if n := strings.Count(b.String(), "\n"); n != 4 {
			t.Errorf("%d lines, want one for each: %s", n, b.String())
		}
		time.Sleep(sayEvery)
		b.Reset()
		say(retry.FailedOver, "gateway/a", "a → b: 503", 0)
		say(retry.FailedOver, "gateway/a", "a → b: 503", 0)
		if text := b.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "suppressed=99") {
			t.Errorf("after a while: %s", text)
		}
		b.Reset()
		for range 5 {
			say(retry.GaveUp, "gateway/a", "", 0)
		}
		if n := strings.Count(b.String(), "\n"); n != 5 {
			t.Errorf("%d lines, want one for each request that failed", n)
		}
	})
}

func TestWhatWasSaidIsForgotten(t *testing.T) {
	var o often
	for i := range 3 * maxSaid {
		if first, _ := o.first(&retry.Event{Kind: retry.FailedOver, Note: fmt.Sprint(i)}); !first {
			t.Fatalf("%d was said before", i)
		}
	}
	if len(o.said) > maxSaid {
		t.Errorf("%d are remembered", len(o.said))
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
