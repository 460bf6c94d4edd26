package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
	list := []prometheus.Collector{s.gateway.Collector(), metrics.Storms(s.alarm)}
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

// know has the workflows counted by their names.
func (s *server) know(workflows []*engine.Workflow) {
	for _, w := range workflows {
		s.tally.Know(w.Name())
	}
}
