package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/cmd/tideover/internal/storm"
)

// sink is the channel to which a collector sends its samples.
type sink chan<- prometheus.Metric

func (ch sink) counter(d *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (ch sink) gauge(d *prometheus.Desc, n float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
}

// describe sends the descriptions of metrics.
func describe(ch chan<- *prometheus.Desc, list ...*prometheus.Desc) {
	for _, d := range list {
		ch <- d
	}
}

// Describe implements [prometheus.Collector].
func (t *Tally) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, metricAttempts, metricFirst, metricFailures, metricLost, metricRetries, metricGiveUps,
		metricStarted, metricEnded)
	t.lengths.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (t *Tally) Collect(out chan<- prometheus.Metric) {
	ch := sink(out)
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, f := range t.flows {
		f.collect(ch, s)
	}
	t.lengths.Collect(out)
}

func (f *flow) collect(ch sink, s storm.Subject) {
	ch.counter(metricAttempts, f.Attempts, s.Layer, s.Name)
	ch.counter(metricFirst, f.First, s.Layer, s.Name)
	ch.counter(metricFailures, f.failures, s.Layer, s.Name)
	ch.counter(metricLost, f.lost, s.Layer, s.Name)
	ch.counter(metricStarted, f.started, s.Layer, s.Name)
	for _, outcome := range []string{"succeeded", "dead", "canceled"} {
		ch.counter(metricEnded, f.ended[outcome], s.Layer, s.Name, outcome)
	}
	for by, n := range f.retries {
		ch.counter(metricRetries, n, s.Layer, s.Name, by.String())
	}
	for reason, n := range f.giveUps {
		ch.counter(metricGiveUps, n, s.Layer, s.Name, reason.String())
	}
}

// Storms returns a collector of the metrics about retry storms.
func Storms(a *storm.Alarm) prometheus.Collector { return storms{a} }

type storms struct{ *storm.Alarm }

// Describe implements [prometheus.Collector].
func (storms) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, metricAmplified, metricStorm, metricStorms)
}

// Collect implements [prometheus.Collector].
func (s storms) Collect(out chan<- prometheus.Metric) {
	ch := sink(out)
	on := map[storm.Subject]float64{}
	for _, one := range s.Storms() {
		on[one.Subject] = 1
	}
	totals := s.Totals()
	for subject, level := range s.Levels() {
		ch.gauge(metricAmplified, level.Amplification, subject.Layer, subject.Name)
		ch.gauge(metricStorm, on[subject], subject.Layer, subject.Name)
		ch.counter(metricStorms, totals[subject], subject.Layer, subject.Name)
	}
}
