package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

// samples returns the numbers of [Gateway.Stats] as name{label="value",…}, with the names of the metrics that the
// command makes of them, without their prefix.
func samples(g *Gateway) map[string]float64 {
	all := map[string]float64{}
	stats := g.Stats()
	for _, f := range stats.Failovers {
		all[fmt.Sprintf("failovers_total{from=%q,to=%q}", f.From, f.To)] = float64(f.Count)
	}
	for i := range stats.Providers {
		addSamples(all, &stats.Providers[i])
	}
	return all
}

// addSamples adds the numbers of a provider to all.
func addSamples(all map[string]float64, p *ProviderStats) {
	st, t := &p.Status, &p.Status.Totals
	set := func(name string, n float64, labels ...string) {
		list := []string{fmt.Sprintf("provider=%q", st.Name)}
		for i := 0; i < len(labels); i += 2 {
			list = append(list, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
		}
		slices.Sort(list)
		all[name+"{"+strings.Join(list, ",")+"}"] = n
	}
	for outcome, n := range map[string]uint64{"succeeded": t.Succeeded, "failed": t.Failed, "canceled": t.Canceled, "cut-short": t.CutShort} {
		set("requests_total", float64(n), "outcome", outcome)
	}
	for name, n := range map[string]uint64{
		"probes_total": t.Probes, "outages_total": p.Outages, "hedges_total": t.Hedges, "cut_short_total": t.CutShort, "throttled_total": t.Throttled,
		"bodies_not_kept_total": t.NotKept, "deadline_rejected_total": p.Late, "ttfb_seconds": p.FirstByte.Count, "in_flight": uint64(st.InFlight),
	} {
		set(name, float64(n))
	}
	for _, a := range p.Attempts {
		set("attempts_total", float64(a.Count), "key", a.Key, "status", a.Status)
	}
	for name, sums := range map[string]map[string]float64{"retries_total": p.Retries, "wait_seconds_total": p.WaitSeconds} {
		for by, n := range sums {
			set(name, n, "by", by)
		}
	}
	for reason, n := range p.GiveUps {
		set("giveups_total", n, "reason", reason)
	}
	is := func(holds bool) float64 {
		if holds {
			return 1
		}
		return 0
	}
	for _, state := range States {
		set("provider_state", is(st.State == state), "state", state)
	}
	for _, state := range []breaker.State{breaker.Closed, breaker.HalfOpen, breaker.Open, breaker.ForcedOpen, breaker.ForcedClosed} {
		set("breaker_state", is(st.Breaker == state.String()), "state", state.String())
	}
	for class := limit.Lowest; class <= limit.Highest; class++ {
		set("waiting", float64(st.ByClass[class.String()]), "class", class.String())
	}
	ofAccount := func(x Throttle) bool { return x.Account != "" }
	for _, k := range st.Keys {
		limited := func(x Throttle) bool { return ofAccount(x) && x.Key == k.Name }
		set("key_cooling", is(k.CoolUntil != nil || slices.ContainsFunc(st.Throttles, limited)), "key", k.Name)
	}
	set("throttled_routes", float64(len(slices.DeleteFunc(slices.Clone(st.Throttles), ofAccount))))
	set("error_pressure", st.Pressure)
	set("amplification", t.Amplified)
	rate := 0.0
	if st.Rate != nil {
		rate = st.Rate.PerSecond
	}
	set("send_rate", rate)
	for _, b := range st.Budgets {
		set("budget_tokens", b.Tokens, "route", b.Route)
	}
	if len(st.Outages) > 0 {
		set("recovery_actual_seconds", st.Outages[0].Seconds)
		if n := st.Outages[0].Predicted; n > 0 {
			set("recovery_predicted_seconds", n)
		}
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, shaky(2, 503))
		spare := newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL)})
		want := func(when string, all map[string]float64) {
			t.Helper()
			got := samples(r.Gateway)
			for name, n := range all {
				if v, ok := got[name]; !ok || v != n {
					t.Errorf("%s: %s is %v (there: %v), want %v", when, name, v, ok, n)
				}
			}
		}
		want("from the start", map[string]float64{
			`provider_state{provider="main",state="up"}`: 1, `provider_state{provider="main",state="down"}`: 0,
			`breaker_state{provider="spare",state="closed"}`: 1, `breaker_state{provider="spare",state="open"}`: 0,
			`requests_total{outcome="succeeded",provider="main"}`: 0, `failovers_total{from="main",to="spare"}`: 0,
			`waiting{class="high",provider="main"}`: 0, `in_flight{provider="main"}`: 0, `outages_total{provider="main"}`: 0,
			`cut_short_total{provider="main"}`: 0, `ttfb_seconds{provider="main"}`: 0,
		})
		r.ask(http.MethodPost, "/p/main/v1/messages", chat)
		r.settled("main")
		want("after two failures", map[string]float64{
			`requests_total{outcome="succeeded",provider="main"}`: 1, `failovers_total{from="main",to="spare"}`: 1,
			`attempts_total{key="key-1",provider="main",status="5xx"}`: 2, `attempts_total{key="key-1",provider="spare",status="2xx"}`: 1,
			`retries_total{by="policy",provider="main"}`: 1, `retries_total{by="at-once",provider="main"}`: 1,
			`amplification{provider="main"}`: 3, `ttfb_seconds{provider="main"}`: 2,
			`budget_tokens{provider="main",route="POST /v1/messages"}`:  500 - 14,
			`budget_tokens{provider="spare",route="POST /v1/messages"}`: 500,
			`key_cooling{key="key-1",provider="main"}`:                  0,
		})
		takeDown(r, "main")
		want("while it is down", map[string]float64{
			`provider_state{provider="main",state="up"}`: 0, `provider_state{provider="main",state="down"}`: 1,
			`breaker_state{provider="main",state="open"}`: 1,
		})
		time.Sleep(time.Second)
		if err := r.Control("main", Close); err != nil {
			t.Fatal(err)
		}
		got := samples(r.Gateway)
		if _, known := got[`recovery_predicted_seconds{provider="main"}`]; got[`recovery_actual_seconds{provider="main"}`] <= 0 || known {
			t.Errorf("the first outage has a prediction, or no duration: %v", got)
		}
		if err := r.Control("main", Reset); err != nil {
			t.Fatal(err)
		}
		takeDown(r, "main")
		time.Sleep(time.Second)
		if err := r.Control("main", Close); err != nil {
			t.Fatal(err)
		}
		got = samples(r.Gateway)
		if got[`recovery_actual_seconds{provider="main"}`] <= 0 || got[`recovery_predicted_seconds{provider="main"}`] <= 0 {
			t.Errorf("the statistics lack the second outage: %v", got)
		}
	})
}
