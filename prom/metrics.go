package prom

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// MaxNames is how many runners get a label of their own; all further runners share
// the label "other".
const MaxNames = 1000

const (
	layer = "call"
	other = "other"
)

// waitBounds are the upper bounds of the buckets for waits, in seconds.
var waitBounds = []float64{0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}

// Metrics counts the events of calls, and reads breakers and budgets. All runners of a
// program share one. It is safe for concurrent use.
type Metrics struct {
	attempts, first, failures, retries, giveUps *prometheus.CounterVec

	waits  *prometheus.HistogramVec
	gauges gauges

	mu    sync.Mutex
	names map[string]bool
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tideover_" + name, Help: help}, append([]string{"layer", "name"}, labels...))
}

// New makes the metrics and registers them. A registry can have only one Metrics.
func New(r prometheus.Registerer) (*Metrics, error) {
	if r == nil {
		return nil, errors.New("prom.New: the registry is nil: pass prometheus.DefaultRegisterer or your own")
	}
	m := &Metrics{
		attempts: counter("attempts_total", "Attempts that were started."),
		first:    counter("first_attempts_total", "Attempts that were started, without retries."),
		failures: counter("attempt_failures_total", "Attempts that failed."),
		retries:  counter("retries_total", "Waits before another attempt, by who set them.", "by"),
		giveUps:  counter("giveups_total", "Calls that gave up, by reason.", "reason"),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tideover_wait_seconds", Help: "Planned length of waits before another attempt, by who set them.", Buckets: waitBounds,
		}, []string{"layer", "by"}),
		names: map[string]bool{},
	}
	for _, c := range []prometheus.Collector{m.attempts, m.first, m.failures, m.retries, m.giveUps, m.waits, &m.gauges} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("prom.New: %w", err)
		}
	}
	return m, nil
}

// Must is [New] for package variables and tests: it panics with the error that New
// would return.
func Must(r prometheus.Registerer) *Metrics {
	m, err := New(r)
	if err != nil {
		panic(err)
	}
	return m
}

// Observe returns an option for a runner that counts the events of its calls.
func (m *Metrics) Observe() retry.Option { return retry.WithObserver(m.Event) }

// Event counts an event. It is for programs that get events from another source, such
// as an engine.
func (m *Metrics) Event(ev retry.Event) {
	switch ev.Kind {
	case retry.AttemptStarted:
		name := m.bounded(ev.Name)
		m.attempts.WithLabelValues(layer, name).Inc()
		if ev.Attempt <= 1 {
			m.first.WithLabelValues(layer, name).Inc()
		}
	case retry.AttemptFailed:
		m.failures.WithLabelValues(layer, m.bounded(ev.Name)).Inc()
	case retry.Waiting:
		m.retries.WithLabelValues(layer, m.bounded(ev.Name), ev.By.String()).Inc()
		m.waits.WithLabelValues(layer, ev.By.String()).Observe(ev.Delay.Seconds())
	case retry.GaveUp:
		m.giveUps.WithLabelValues(layer, m.bounded(ev.Name), ev.Reason.String()).Inc()
	default:
	}
}

// bounded returns the label for the name of a runner; see [MaxNames].
func (m *Metrics) bounded(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.names[name] {
		if len(m.names) >= MaxNames {
			return other
		}
		m.names[name] = true
	}
	return name
}

// Breaker adds the state of a breaker to the metrics. It replaces a breaker of the same
// name.
func (m *Metrics) Breaker(b *breaker.Breaker) {
	m.gauges.mu.Lock()
	defer m.gauges.mu.Unlock()
	if m.gauges.breakers == nil {
		m.gauges.breakers = map[string]*breaker.Breaker{}
	}
	m.gauges.breakers[b.Name()] = b
}

// Budget adds the rest of a budget to the metrics. It replaces a budget of the same
// name.
func (m *Metrics) Budget(name string, b *limit.Budget) {
	m.gauges.mu.Lock()
	defer m.gauges.mu.Unlock()
	if m.gauges.budgets == nil {
		m.gauges.budgets = map[string]*limit.Budget{}
	}
	m.gauges.budgets[name] = b
}
