package nip90

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tideover_nip90_"+name, help, labels, nil)
}

// The metrics. Most counters start at 0 again when the section nip90 of the configuration
// changes.
var (
	metricActive    = desc("jobs_active", "Jobs without an outcome.")
	metricLate      = desc("late_results_total", "Results that arrived too late and were dropped.")
	metricIntake    = desc("intake_total", "Incoming events, by verdict.", "verdict")
	metricUp        = desc("relay_up", "Whether the relay is connected.", "relay")
	metricHealthy   = desc("relay_healthy", "Whether the relay is connected and works without problems.", "relay")
	metricQueued    = desc("relay_queued", "Events that the relay has not acknowledged yet.", "relay")
	metricPublished = desc("relay_events_total", "Published events, by the relay's answer.", "relay", "answer")
	metricBad       = desc("relay_bad_total", "Messages that the relay should not have sent, by kind.", "relay", "what")
)

// Collector returns the metrics.
func (s *Service) Collector() prometheus.Collector { return collector{s} }

type collector struct{ *Service }

// Describe implements [prometheus.Collector].
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		metricActive, metricLate, metricIntake, metricUp, metricHealthy, metricQueued, metricPublished, metricBad,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. It returns no metrics while no jobs are
// accepted.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	client, provider := c.link, c.provider
	c.mu.Unlock()
	if client == nil {
		return
	}
	put := func(d *prometheus.Desc, t prometheus.ValueType, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, n, labels...)
	}
	put(metricActive, prometheus.GaugeValue, float64(c.jobs.size()))
	put(metricLate, prometheus.CounterValue, float64(c.late.Load()))
	stats := provider.Stats()
	for v := dvm.WrongKind; v <= dvm.Withdrawn; v++ {
		put(metricIntake, prometheus.CounterValue, float64(stats[v]), v.String())
	}
	for _, r := range client.Status() {
		collectRelay(put, &r)
	}
}

func collectRelay(put func(*prometheus.Desc, prometheus.ValueType, float64, ...string), r *nostr.RelayStatus) {
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	put(metricUp, prometheus.GaugeValue, flag(r.Up), r.URL)
	put(metricHealthy, prometheus.GaugeValue, flag(r.Healthy()), r.URL)
	put(metricQueued, prometheus.GaugeValue, float64(r.Queued), r.URL)
	for answer, n := range map[string]int{"acknowledged": r.Acknowledged, "refused": r.Refused, "dropped": r.Dropped} {
		put(metricPublished, prometheus.CounterValue, float64(n), r.URL, answer)
	}
	for what, n := range map[string]int{"frame": r.BadFrames, "oversized": r.Oversized, "event": r.BadEvents, "unknown": r.Unknown, "unfit": r.Unfit} {
		put(metricBad, prometheus.CounterValue, float64(n), r.URL, what)
	}
}
