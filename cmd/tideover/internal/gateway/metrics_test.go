package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// samples returns all metrics as name{label="value",…} and a number.
func samples(t testing.TB, g *Gateway) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(g.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all[strings.TrimPrefix(f.GetName(), "tideover_gateway_")+"{"+strings.Join(labels, ",")+"}"] = number(m)
		}
	}
	return all
}

func number(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	default:
		return float64(m.Histogram.GetSampleCount())
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, shaky(2, 503))
		spare := newUpstream(t, says("the spare"))
		r := newRig(t, []Spec{spec(t, "main", Anthropic, u.URL, fallback("spare")), spec(t, "spare", Anthropic, spare.URL)})
		want := func(when string, all map[string]float64) {
			t.Helper()
			got := samples(t, r.Gateway)
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
		got := samples(t, r.Gateway)
		if _, known := got[`recovery_predicted_seconds{provider="main"}`]; got[`recovery_actual_seconds{provider="main"}`] <= 0 || known {
			t.Errorf("the first outage was predicted by nobody: %v", got)
		}
		if err := r.Control("main", Reset); err != nil {
			t.Fatal(err)
		}
		takeDown(r, "main")
		time.Sleep(time.Second)
		if err := r.Control("main", Close); err != nil {
			t.Fatal(err)
		}
		got = samples(t, r.Gateway)
		if got[`recovery_actual_seconds{provider="main"}`] <= 0 || got[`recovery_predicted_seconds{provider="main"}`] <= 0 {
			t.Errorf("the second outage is not told: %v", got)
		}
	})
}
