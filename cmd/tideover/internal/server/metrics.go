package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// collectors returns the metrics of the server, its connections and its parts.
func (s *server) collectors() []prometheus.Collector {
	return append(s.parts.collectors(), certificateCollector{s.addresses.certificate}, s.connections)
}

// metricsHandler serves the metrics of the collectors, and those of Go and of the process.
func metricsHandler(list []prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(list...)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// certificateCollector collects the expiry of a certificate, which may be nil.
type certificateCollector struct{ *httpserver.Certificate }

var metricCertificate = prometheus.NewDesc("tideover_certificate_end_timestamp_seconds", "When the current certificate expires, in seconds since 1970; absent without TLS.", nil, nil)

// Describe implements [prometheus.Collector].
func (certificateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- metricCertificate }

// Collect implements [prometheus.Collector].
func (c certificateCollector) Collect(ch chan<- prometheus.Metric) {
	if c.Certificate != nil {
		pair, _ := c.Current()
		ch <- prometheus.MustNewConstMetric(metricCertificate, prometheus.GaugeValue, float64(pair.Leaf.NotAfter.Unix()))
	}
}
