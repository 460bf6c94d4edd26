package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"slices"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

// metric returns the description of a metric of the gateway. All but a few are by
// provider.
func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tideover_gateway_"+name, help, append([]string{"provider"}, labels...), nil)
}

var (
	metricRequests   = metric("requests_total", "Requests of callers, by what became of them.", "outcome")
	metricAttempts   = metric("attempts_total", "Attempts sent to the provider, by key and class of status.", "key", "status")
	metricRetries    = metric("retries_total", "Retries of requests, by who set the wait.", "by")
	metricWaits      = metric("wait_seconds_total", "Time that requests have waited, by what for.", "by")
	metricGiveUps    = metric("giveups_total", "Requests that were given up, by reason.", "reason")
	metricFailovers  = prometheus.NewDesc("tideover_gateway_failovers_total", "Moves of requests from one provider to another.", []string{"from", "to"}, nil)
	metricState      = metric("provider_state", "1 for the state that the provider is in.", "state")
	metricBreaker    = metric("breaker_state", "1 for the state that the provider's breaker is in.", "state")
	metricWaiting    = metric("waiting", "Requests that wait for their turn, or for recovery.", "class")
	metricInFlight   = metric("in_flight", "Attempts under way at the provider.")
	metricProbes     = metric("probes_total", "Attempts that looked whether the provider is back.")
	metricOutages    = metric("outages_total", "Outages that are over.")
	metricPredicted  = metric("recovery_predicted_seconds", "How long the last outage was expected to last when it began; absent if nobody could know.")
	metricActual     = metric("recovery_actual_seconds", "How long the last outage lasted, up to its last failure if nobody asked for long after it.")
	metricPressure   = metric("error_pressure", "How much of what is sent to the provider is in vain.")
	metricSendRate   = metric("send_rate", "Requests a second that are allowed; 0 if nothing limits them.")
	metricBudget     = metric("budget_tokens", "What is left for retries of a route.", "route")
	metricTTFB       = metric("ttfb_seconds", "Time from sending an attempt to the first byte of its answer.")
	metricHedges     = metric("hedges_total", "Second attempts beside a slow one.")
	metricCutShort   = metric("cut_short_total", "Answers that broke off after the caller had seen some of them.")
	metricNotKept    = metric("bodies_not_kept_total", "Bodies of requests that were too long to be sent again.")
	metricLate       = metric("deadline_rejected_total", "Requests whose deadline could not be kept.")
	metricAmplified  = metric("amplification", "Attempts of the provider's own requests, here or elsewhere, for each of them.")
	metricThrottled  = metric("throttled_total", "Answers of the provider that say too many requests.")
	metricThrottles  = metric("throttled_routes", "Routes, by model and key, that were told to wait.")
	metricKeyCooling = metric("key_cooling", "1 while a key is not used because it was refused, or because its account is limited.", "key")
)

var allMetrics = []*prometheus.Desc{
	metricRequests, metricAttempts, metricRetries, metricWaits, metricGiveUps, metricFailovers, metricState, metricBreaker,
	metricWaiting, metricInFlight, metricProbes, metricOutages, metricPredicted, metricActual, metricPressure, metricSendRate,
	metricBudget, metricTTFB, metricHedges, metricCutShort, metricNotKept, metricLate, metricAmplified, metricThrottled, metricKeyCooling,
	metricThrottles,
}

// breakerStates are all states of a breaker.
var breakerStates = []string{
	breaker.Closed.String(), breaker.HalfOpen.String(), breaker.Open.String(),
	breaker.ForcedOpen.String(), breaker.ForcedClosed.String(),
}

// Collector returns the metrics of the gateway, computed when they are asked for.
func (g *Gateway) Collector() prometheus.Collector { return collector{g} }

// Load is what callers asked of a provider since the start, and what came of it.
type Load struct {
	Requests uint64 // of callers
	Sent     uint64 // attempts made for them, here or elsewhere
}

// Loads returns the load of each provider, by name.
func (g *Gateway) Loads() map[string]Load {
	t := g.table.Load()
	loads := make(map[string]Load, len(t.names))
	for name, p := range t.providers {
		loads[name] = Load{p.stats.requests.Load(), p.stats.sent.Load()}
	}
	return loads
}

type collector struct{ g *Gateway }

// Describe implements [prometheus.Collector].
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range allMetrics {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	t := c.g.table.Load()
	for pair, n := range t.failovers() {
		ch <- prometheus.MustNewConstMetric(metricFailovers, prometheus.CounterValue, n, pair.from, pair.to)
	}
	for _, name := range t.names {
		s := scrape{ch, name}
		p := t.providers[name]
		st := p.status()
		s.counts(p.stats)
		s.labelled(p)
		s.states(&st)
		s.gauges(p, &st)
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

// oneOf writes 1 for the word that holds, and 0 for all others.
func (s scrape) oneOf(d *prometheus.Desc, all []string, holds string) {
	for _, word := range all {
		n := 0.0
		if word == holds {
			n = 1
		}
		s.gauge(d, n, word)
	}
}

func (s scrape) counts(t *stats) {
	s.counter(metricRequests, float64(t.succeeded.Load()), "succeeded")
	s.counter(metricRequests, float64(t.failed.Load()), "failed")
	s.counter(metricRequests, float64(t.canceled.Load()), "canceled")
	s.counter(metricRequests, float64(t.cutShort.Load()), "cut-short")
	s.counter(metricProbes, float64(t.probes.Load()))
	s.counter(metricOutages, float64(t.outages.Load()))
	s.counter(metricHedges, float64(t.hedges.Load()))
	s.counter(metricCutShort, float64(t.cutShort.Load()))
	s.counter(metricNotKept, float64(t.notKept.Load()))
	s.counter(metricLate, float64(t.late.Load()))
	s.counter(metricThrottled, float64(t.throttled.Load()))
	n, sum, buckets := t.ttfb.snapshot()
	s.ch <- prometheus.MustNewConstHistogram(metricTTFB, n, sum, buckets, s.provider)
}

func (s scrape) labelled(p *provider) {
	t := p.stats
	for _, k := range p.keys.keys {
		for i := range k.stats.by {
			if n := k.stats.by[i].Load(); n > 0 {
				s.counter(metricAttempts, float64(n), k.name, classes[i])
			}
		}
	}
	for by, n := range t.retries.all() {
		s.counter(metricRetries, n, by)
	}
	for by, n := range t.waits.all() {
		s.counter(metricWaits, n, by)
	}
	for reason, n := range t.giveUps.all() {
		s.counter(metricGiveUps, n, reason)
	}
}

func (s scrape) states(st *Status) {
	s.oneOf(metricState, States, st.State)
	s.oneOf(metricBreaker, breakerStates, st.Breaker)
	for class := limit.Lowest; class <= limit.Highest; class++ {
		s.gauge(metricWaiting, float64(st.ByClass[class.String()]), class.String())
	}
	for _, k := range st.Keys {
		cooling := 0.0
		if k.CoolUntil != nil || slices.ContainsFunc(st.Throttles, func(x Throttle) bool { return x.Account != "" && x.Key == k.Name }) {
			cooling = 1
		}
		s.gauge(metricKeyCooling, cooling, k.Name)
	}
}

func (s scrape) gauges(p *provider, st *Status) {
	routes := 0
	for _, x := range st.Throttles {
		if x.Account == "" {
			routes++
		}
	}
	s.gauge(metricThrottles, float64(routes))
	s.gauge(metricInFlight, float64(st.InFlight))
	s.gauge(metricPressure, st.Pressure)
	s.gauge(metricAmplified, st.Totals.Amplified)
	rate := 0.0
	if st.Rate != nil {
		rate = st.Rate.PerSecond
	}
	s.gauge(metricSendRate, rate)
	for _, b := range st.Budgets {
		s.gauge(metricBudget, b.Tokens, b.Route)
	}
	if o, ok := p.history.last(); ok {
		s.gauge(metricActual, o.Seconds)
		if o.Predicted > 0 {
			s.gauge(metricPredicted, o.Predicted)
		}
	}
}
