package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/connlimit"
	"github.com/tideover/tideover/gateway"
)

// connections limits the connections of both listeners.
type connections struct {
	budget connlimit.Budget
	tcp    *connlimit.Limiter
	socket *connlimit.Limiter
}

// newConnections divides the file descriptors of this process between connections and everything
// else. It lowers server.max-connections, with a warning, if there are too few descriptors for it.
func newConnections(cfg *config.Config, gatewayOnly bool, log *slog.Logger) *connections {
	attempts := cfg.Server.Concurrency + len(cfg.Sessions)
	if gatewayOnly {
		attempts = 0
	}
	c := &connections{budget: connlimit.Divide(connlimit.Descriptors(), attempts)}
	most := cmp.Or(cfg.Server.MaxConnections, c.budget.Default())
	if most > c.budget.Connections {
		log.Warn("server.max-connections exceeds the limit of open files", "max", most, "allowed", c.budget.Connections, "descriptors", c.budget.Descriptors,
			"do", "raise the limit of open files (ulimit -n, LimitNOFILE= of systemd), or lower server.max-connections")
		most = c.budget.Connections
	}
	c.tcp = &connlimit.Limiter{Max: most, Requests: most, OnLimit: logLimit(log, "tcp")}
	c.tcp.PerAddress = min(cmp.Or(cfg.Server.MaxConnectionsPerAddress, max(most/2, 1)), most)
	c.socket = &connlimit.Limiter{Max: c.budget.Socket, OnLimit: logLimit(log, "unix")}
	return c
}

// logLimit returns a function that logs which limit of the listener was reached.
func logLimit(log *slog.Logger, listener string) func(connlimit.Reason) {
	return func(r connlimit.Reason) {
		log.Warn("too many connections: unused ones are closed, new ones are refused", "listener", listener, "reason", string(r),
			"do", "see tideover_connections_refused_total, and server.max-connections in docs/security.md")
	}
}

// streams returns the limits of event streams over TCP and over the socket: at most half of the
// connections, so that enough remain for other requests.
func (c *connections) streams() (tcp, local int) {
	return min(api.MaxStreams, max(c.tcp.Max/2, 1)), min(api.MaxStreams, max(c.socket.Max/2, 1))
}

// tooManyRequests answers requests to the gateway that exceed the limit of concurrent requests.
func tooManyRequests(g *gateway.Gateway) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Reject(w, r, http.StatusServiceUnavailable, "busy", "the server has too many requests at once: try again later", time.Second)
	})
}

var (
	metricConnections        = prometheus.NewDesc("tideover_connections", "Open connections.", []string{"listener"}, nil)
	metricConnectionsRefused = prometheus.NewDesc("tideover_connections_refused_total", "Connections and requests that were refused because a limit was reached and all others were in use.", []string{"listener", "reason"}, nil)
	metricConnectionsClosed  = prometheus.NewDesc("tideover_connections_closed_total", "Unused connections that were closed because a limit was reached.", []string{"listener", "reason"}, nil)
)

// Describe implements [prometheus.Collector].
func (c *connections) Describe(ch chan<- *prometheus.Desc) {
	ch <- metricConnections
	ch <- metricConnectionsRefused
	ch <- metricConnectionsClosed
}

// Collect implements [prometheus.Collector].
func (c *connections) Collect(ch chan<- prometheus.Metric) {
	for listener, l := range map[string]*connlimit.Limiter{"tcp": c.tcp, "unix": c.socket} {
		stats := l.Stats()
		ch <- prometheus.MustNewConstMetric(metricConnections, prometheus.GaugeValue, float64(stats.Open), listener)
		for _, r := range connlimit.Reasons {
			ch <- prometheus.MustNewConstMetric(metricConnectionsRefused, prometheus.CounterValue, float64(stats.Refused[r]), listener, string(r))
			if r != connlimit.RequestLimit {
				ch <- prometheus.MustNewConstMetric(metricConnectionsClosed, prometheus.CounterValue, float64(stats.Closed[r]), listener, string(r))
			}
		}
	}
}
