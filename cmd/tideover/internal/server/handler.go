package server

import (
	"net"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/docsite"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/web"
)

// newControl returns the operations on this server, for the API and the pages.
func (s *server) newControl() *admin.Service {
	p := s.parts
	c := admin.Config{
		Engine: p.engine, Clustered: p.cluster != nil, Providers: p.gateway, Storms: p.observer.alarm.Storms,
		Data: s.cfg.Server.Data, Version: s.options.Version, Logger: s.options.Log,
		Settings: s.reloader.settings, ConfigFile: s.reloader.file, Place: s.addresses.place,
		Doctor: p.diagnose, Findings: p.machineFindings, CallbackKey: s.callbackKey,
		Outputs: p.outputs, Charts: p.observer.charts, Redactor: s.options.Source.Redactor,
		ProviderChanged: s.observer.recordProviderAction,
	}
	if s.cfg.Gateway.KeepRequests > 0 {
		c.Requests = p.gateway
	}
	if p.nip90 != nil {
		c.Relays = p.nip90.Relays
	}
	if p.sessions != nil {
		c.Sessions = p.sessions
	}
	return admin.New(c)
}

// handler returns the handler of the gateway, the API, the page, the documentation and the metrics.
func (s *server) handler(addr net.Addr) http.Handler {
	guard := httpserver.GuardOptions{
		Token: s.token, Users: s.users, Hosts: append([]string{addr.String(), s.addresses.listen()}, s.cfg.Server.Hosts...), MaxBody: s.cfg.Server.MaxBody,
		Audit: s.observer.recordAccess,
	}
	if s.options.Gateway {
		guard.Command = "tideover gateway"
	}
	service := s.newControl()
	o := api.Options{Control: service, Guard: guard, Logger: s.options.Log}
	o.Streams, o.LocalStreams = s.connections.streams()
	shown := *service // for the pages, which also show the sessions of every watch
	if own := s.parts.sessions; own != nil {
		shown.Sessions = &admin.Sessions{SessionManager: &pageSessions{own, s.cfg.Server.Data}}
	}
	rest := httpserver.Timely(api.New(o))
	site := web.New(web.Options{Control: &shown, Redact: s.options.Source.Redactor.String})
	page := httpserver.Timely(httpserver.Guard(guard, site))
	metrics := httpserver.Timely(httpserver.Guard(guard, metricsHandler(s.collectors())))
	readable := guard
	readable.Public = docsite.Has
	docs := httpserver.Timely(httpserver.Guard(readable, docsite.Handler()))
	gateway := s.parts.gateway
	local := httpserver.ProgressTimeout(gateway, httpserver.DefaultProgressTimeout)
	providers := s.connections.tcp.LimitRequests(local, tooManyRequests(gateway))
	unknown := httpserver.Timely(gateway) // answers with an error that lists the paths of the gateway
	// This is not a ServeMux, which would redirect a path whose key contains two slashes.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/p/") && httpserver.Local(r.Context()):
			local.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/p/"):
			providers.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/api/") || path == "/healthz" || strings.HasPrefix(path, httpserver.CallbackPrefix):
			rest.ServeHTTP(w, r)
		case path == httpserver.MetricsPath:
			metrics.ServeHTTP(w, r)
		case docsite.Has(path):
			docs.ServeHTTP(w, r)
		case acceptsHTML(r) || site.Has(r):
			page.ServeHTTP(w, r)
		default: // probably a client of the gateway whose base URL names no provider
			unknown.ServeHTTP(w, r)
		}
	})
}

// acceptsHTML reports whether the client is a browser that asks for a page.
func acceptsHTML(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// collectors returns the metrics of the server, its connections and its parts.
func (s *server) collectors() []prometheus.Collector {
	return append(s.parts.collectors(), certificateCollector{s.addresses.certificate}, auditCollector{s.parts.observer.audit}, s.connections)
}

// metricsHandler serves the metrics of the collectors, and those of Go and of the process.
func metricsHandler(list []prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(list...)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// certificateCollector collects the time when the certificate expires. Without a certificate it
// collects nothing.
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
