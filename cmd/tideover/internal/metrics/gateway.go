package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/limit"
)

// gatewayMetric returns the description of a metric of the gateway with the label provider.
func gatewayMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tideover_gateway_"+name, help, append([]string{"provider"}, labels...), nil)
}

var (
	gatewayRequests   = gatewayMetric("requests_total", "Requests of callers, by outcome.", "outcome")
	gatewayAttempts   = gatewayMetric("attempts_total", "Attempts sent to the provider, by key and class of status.", "key", "status")
	gatewayRetries    = gatewayMetric("retries_total", "Retries of requests, by who set the wait.", "by")
	gatewayWaits      = gatewayMetric("wait_seconds_total", "Time that requests have waited, by reason.", "by")
	gatewayGiveUps    = gatewayMetric("giveups_total", "Requests that were given up, by reason.", "reason")
	gatewayFailovers  = prometheus.NewDesc("tideover_gateway_failovers_total", "Requests that moved from one provider to another.", []string{"from", "to"}, nil)
	gatewayState      = gatewayMetric("provider_state", "1 for the state that the provider is in.", "state")
	gatewayBreaker    = gatewayMetric("breaker_state", "1 for the state that the provider's breaker is in.", "state")
	gatewayWaiting    = gatewayMetric("waiting", "Requests that wait because of a limit, or until the provider is back.", "class")
	gatewayInFlight   = gatewayMetric("in_flight", "Attempts under way at the provider.")
	gatewayProbes     = gatewayMetric("probes_total", "Attempts that probed whether the provider is back.")
	gatewayOutages    = gatewayMetric("outages_total", "Outages that are over.")
	gatewayPredicted  = gatewayMetric("recovery_predicted_seconds", "How long the last outage was expected to last when it began; absent without earlier outages.")
	gatewayActual     = gatewayMetric("recovery_actual_seconds", "How long the last outage lasted; up to its last failure if no request followed for a long time.")
	gatewayPressure   = gatewayMetric("error_pressure", "Share of failures among recent requests above one half, from 0 to 0.9; lengthens delays.")
	gatewaySendRate   = gatewayMetric("send_rate", "Requests per second that are allowed; 0 means no limit.")
	gatewayBudget     = gatewayMetric("budget_tokens", "Tokens that are left for retries of a route.", "route")
	gatewayTTFB       = gatewayMetric("ttfb_seconds", "Time from sending an attempt to the first byte of its response.")
	gatewayHedges     = gatewayMetric("hedges_total", "Second attempts that started while a slow one was running.")
	gatewayCutShort   = gatewayMetric("cut_short_total", "Responses that broke off after the caller had received a part.")
	gatewayNotKept    = gatewayMetric("bodies_not_kept_total", "Bodies of requests that were too long to be sent again.")
	gatewayLate       = gatewayMetric("deadline_rejected_total", "Requests whose deadline could not be met.")
	gatewayAmplified  = gatewayMetric("amplification", "Attempts per request to the provider, including attempts at its fallbacks.")
	gatewayThrottled  = gatewayMetric("throttled_total", "Responses of the provider with too many requests.")
	gatewayThrottles  = gatewayMetric("throttled_routes", "Routes, by model and key, that have to wait.")
	gatewayKeyCooling = gatewayMetric("key_cooling", "1 while a key is not used because it was rejected, or because its account is limited.", "key")
)

var gatewayMetrics = []*prometheus.Desc{
	gatewayRequests, gatewayAttempts, gatewayRetries, gatewayWaits, gatewayGiveUps, gatewayFailovers, gatewayState, gatewayBreaker,
	gatewayWaiting, gatewayInFlight, gatewayProbes, gatewayOutages, gatewayPredicted, gatewayActual, gatewayPressure, gatewaySendRate,
	gatewayBudget, gatewayTTFB, gatewayHedges, gatewayCutShort, gatewayNotKept, gatewayLate, gatewayAmplified, gatewayThrottled, gatewayKeyCooling,
	gatewayThrottles,
}

// breakerStates are all states of a breaker.
var breakerStates = []string{
	breaker.Closed.String(), breaker.HalfOpen.String(), breaker.Open.String(),
	breaker.ForcedOpen.String(), breaker.ForcedClosed.String(),
}

// Gateway returns a collector of the metrics of a gateway.
func Gateway(g *gateway.Gateway) prometheus.Collector { return gatewayCollector{g} }

type gatewayCollector struct{ g *gateway.Gateway }

// Describe implements [prometheus.Collector].
func (gatewayCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, gatewayMetrics...)
}

// Collect implements [prometheus.Collector].
func (c gatewayCollector) Collect(ch chan<- prometheus.Metric) {
	stats := c.g.Stats()
	for _, f := range stats.Failovers {
		ch <- prometheus.MustNewConstMetric(gatewayFailovers, prometheus.CounterValue, float64(f.Count), f.From, f.To)
	}
	for i := range stats.Providers {
		p := &stats.Providers[i]
		s := scrape{ch, p.Status.Name}
		s.counts(p)
		s.labelled(p)
		s.states(&p.Status)
		s.gauges(&p.Status)
	}
}

// scrape writes the metrics of one provider.
type scrape struct {
	ch       chan<- prometheus.Metric
	provider string
}

func (s scrape) counter(d *prometheus.Desc, n float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, append([]string{s.provider}, labels...)...)
}

func (s scrape) gauge(d *prometheus.Desc, n float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, append([]string{s.provider}, labels...)...)
}

// oneOf writes a gauge for each value of the label: 1 for the current value, and 0 for the others.
func (s scrape) oneOf(d *prometheus.Desc, values []string, current string) {
	for _, value := range values {
		n := 0.0
		if value == current {
			n = 1
		}
		s.gauge(d, n, value)
	}
}

func (s scrape) counts(p *gateway.ProviderStats) {
	t := &p.Status.Totals
	s.counter(gatewayRequests, float64(t.Succeeded), "succeeded")
	s.counter(gatewayRequests, float64(t.Failed), "failed")
	s.counter(gatewayRequests, float64(t.Canceled), "canceled")
	s.counter(gatewayRequests, float64(t.CutShort), "cut-short")
	s.counter(gatewayProbes, float64(t.Probes))
	s.counter(gatewayOutages, float64(p.Outages))
	s.counter(gatewayHedges, float64(t.Hedges))
	s.counter(gatewayCutShort, float64(t.CutShort))
	s.counter(gatewayNotKept, float64(t.NotKept))
	s.counter(gatewayLate, float64(p.Late))
	s.counter(gatewayThrottled, float64(t.Throttled))
	s.ch <- prometheus.MustNewConstHistogram(gatewayTTFB, p.FirstByte.Count, p.FirstByte.Seconds, p.FirstByte.Buckets, s.provider)
}

func (s scrape) labelled(p *gateway.ProviderStats) {
	for _, a := range p.Attempts {
		s.counter(gatewayAttempts, float64(a.Count), a.Key, a.Status)
	}
	for by, n := range p.Retries {
		s.counter(gatewayRetries, n, by)
	}
	for by, n := range p.WaitSeconds {
		s.counter(gatewayWaits, n, by)
	}
	for reason, n := range p.GiveUps {
		s.counter(gatewayGiveUps, n, reason)
	}
}

func (s scrape) states(st *gateway.Status) {
	s.oneOf(gatewayState, gateway.States, st.State)
	s.oneOf(gatewayBreaker, breakerStates, st.Breaker)
	for class := limit.Lowest; class <= limit.Highest; class++ {
		s.gauge(gatewayWaiting, float64(st.ByClass[class.String()]), class.String())
	}
	for _, k := range st.Keys {
		cooling := 0.0
		if k.CoolUntil != nil || slices.ContainsFunc(st.Throttles, func(x gateway.Throttle) bool { return x.Account != "" && x.Key == k.Name }) {
			cooling = 1
		}
		s.gauge(gatewayKeyCooling, cooling, k.Name)
	}
}

func (s scrape) gauges(st *gateway.Status) {
	routes := 0
	for _, x := range st.Throttles {
		if x.Account == "" {
			routes++
		}
	}
	s.gauge(gatewayThrottles, float64(routes))
	s.gauge(gatewayInFlight, float64(st.InFlight))
	s.gauge(gatewayPressure, st.Pressure)
	s.gauge(gatewayAmplified, st.Totals.Amplified)
	rate := 0.0
	if st.Rate != nil {
		rate = st.Rate.PerSecond
	}
	s.gauge(gatewaySendRate, rate)
	for _, b := range st.Budgets {
		s.gauge(gatewayBudget, b.Tokens, b.Route)
	}
	if len(st.Outages) > 0 {
		o := &st.Outages[0] // the latest
		s.gauge(gatewayActual, o.Seconds)
		if o.Predicted > 0 {
			s.gauge(gatewayPredicted, o.Predicted)
		}
	}
}
