package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

func TestWaitsOf(t *testing.T) {
	t.Parallel()
	wait := func(d time.Duration, by string) *engine.WaitInfo { return &engine.WaitInfo{Delay: d, By: by} }
	for _, c := range []struct {
		name     string
		attempts []engine.AttemptInfo
		want     string
	}{
		{"none", []engine.AttemptInfo{{Outcome: "succeeded"}}, ""},
		{"two retries", []engine.AttemptInfo{{Outcome: "failed", Wait: wait(1, "policy")}, {Outcome: "failed", Wait: wait(2, "server")}, {Outcome: "succeeded"}}, "1 1 policy, 2 2 server"},
		{"a limit does not count as a retry", []engine.AttemptInfo{{Outcome: "limited", Wait: wait(9, "server")}, {Outcome: "failed", Wait: wait(1, "policy")}}, "1 9 server, 1 1 policy"},
		{"retried by an operator", []engine.AttemptInfo{{Outcome: "failed", Wait: wait(1, "policy")}, {Outcome: "failed", Reason: "attempts"}, {Outcome: "failed", Wait: wait(1, "policy")}}, "1 1 policy, 1 1 policy"},
	} {
		var got []string
		for _, u := range waitsOf("w", &engine.StepInfo{Name: "s", Attempts: c.attempts}) {
			got = append(got, fmt.Sprintf("%d %d %s", u.Retry, u.Delay, u.By))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: %q, want %q", c.name, s, c.want)
		}
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	p := must(plan.Parse("exponential(1s..8s) jitter=full attempts=5", plan.Options{List: shownRetries}))
	v := newPlot(&p, []used{{1, time.Second, "policy", "a"}, {4, 16 * time.Second, "server", "b"}, {9, time.Second, "policy", "c"}})
	if len(v.Bands) != 4 || len(v.Dots) != 2 || v.Left != 1 || len(v.Ticks) < 3 || len(v.Columns) != 4 {
		t.Errorf("%+v", v)
	}
	if top := v.Dots[1]; top.Y != "4.00%" || top.Class != "by-server" {
		t.Errorf("the longest is at %+v, want the top", top)
	}
	one := must(plan.Parse("fixed(1s) attempts=1", plan.Options{}))
	if newPlot(&one, nil) != nil {
		t.Error("one attempt has a plot")
	}
	zero := must(plan.Parse("fixed(0s) attempts=3", plan.Options{}))
	has(t, "no delay at all", newPlot(&zero, nil).Bands[0].Line, "100.00%")
}

func TestPoliciesPage(t *testing.T) {
	t.Parallel()
	g := newFullSite(t)
	g.fleet.change("anthropic", func(st *gateway.Status) { st.Policy = "exponential(1s..2m) jitter=full attempts=6 total-timeout=15m" })
	g.until(g.start("order", job{Fail: 2, Server: "30ms"}), "succeeded")
	g.dead(1, job{})
	body := g.page("/policies")
	has(t, "/policies", body, `aria-current="page">Policies</a>`, ">api</h2>", "exponential(1s..2m) jitter=full attempts=6", "provider anthropic", "order · charge", "Not used.",
		"actual wait, set by server", "actual wait, set by policy", `class="used by-server"`, "total wait", "Unlimited attempts", "notify.phone", "worst case")
	if strings.Count(body, `<section class="card"`) < 7 {
		t.Errorf("few policies\n%s", body)
	}
}

func TestWaitSamplesAreCached(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	now := time.Now()
	_, first, err := b.h.samples.get(t.Context(), policiesPage{b.h.server, &b.h.samples}.collect, now)
	_, second, err2 := b.h.samples.get(t.Context(), policiesPage{b.h.server, &b.h.samples}.collect, now.Add(sampleTime/2))
	_, third, err3 := b.h.samples.get(t.Context(), policiesPage{b.h.server, &b.h.samples}.collect, now.Add(sampleTime))
	if err != nil || err2 != nil || err3 != nil || !first.Equal(now) || !second.Equal(now) || third.Equal(now) {
		t.Errorf("looked at %v, %v, %v; %v %v %v", first, second, third, err, err2, err3)
	}
}
