package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/engine"
)

// metrics returns what Prometheus reads.
func (s *server) metrics() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(s.collectors()...)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// collectors returns the metrics that are ours.
func (s *server) collectors() []prometheus.Collector {
	list := []prometheus.Collector{metrics.Gateway(s.gateway), metrics.Storms(s.alarm), certified{s.addresses.certificate}, &s.connections}
	if s.nip90 != nil {
		list = append(list, s.nip90.Collector())
	}
	if s.engine != nil {
		source := &metrics.Source{Engine: s.engine, Clustered: s.cluster != nil, Tally: s.tally}
		if s.sessions != nil {
			source.Sessions = s.sessions.List
		}
		list = append(list, s.tally, source)
	}
	return list
}

// certified tells of a certificate, which may be nil.
type certified struct{ *httpserver.Certificate }

var metricCertificate = prometheus.NewDesc("tideover_certificate_end_timestamp_seconds", "When the current certificate expires, in seconds since 1970; absent without TLS.", nil, nil)

// Describe implements [prometheus.Collector].
func (certified) Describe(ch chan<- *prometheus.Desc) { ch <- metricCertificate }

// Collect implements [prometheus.Collector].
func (c certified) Collect(ch chan<- prometheus.Metric) {
	if c.Certificate != nil {
		pair, _ := c.Current()
		ch <- prometheus.MustNewConstMetric(metricCertificate, prometheus.GaugeValue, float64(pair.Leaf.NotAfter.Unix()))
	}
}

// know has the workflows counted by their names.
func (s *server) know(workflows []*engine.Workflow) {
	for _, w := range workflows {
		s.tally.Know(w.Name())
	}
}
