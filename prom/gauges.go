package prom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

var (
	stateDesc  = prometheus.NewDesc("tideover_breaker_state", "1 for the state that the breaker is in.", []string{"name", "state"}, nil)
	tokensDesc = prometheus.NewDesc("tideover_budget_tokens", "What is left of a budget for retries.", []string{"name"}, nil)
)

// breakerStates lists all states. Each breaker has a sample for each state: 1 for its
// current state, 0 for the others.
var breakerStates = []breaker.State{breaker.Closed, breaker.HalfOpen, breaker.Open, breaker.ForcedOpen, breaker.ForcedClosed}

// gauges reads the state of breakers and budgets when metrics are collected.
type gauges struct {
	mu       sync.Mutex
	breakers map[string]*breaker.Breaker
	budgets  map[string]*limit.Budget
}

// Describe implements [prometheus.Collector].
func (*gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- stateDesc
	ch <- tokensDesc
}

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, b := range g.breakers {
		is := b.State()
		for _, s := range breakerStates {
			n := 0.0
			if s == is {
				n = 1
			}
			ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, n, name, s.String())
		}
	}
	for name, b := range g.budgets {
		ch <- prometheus.MustNewConstMetric(tokensDesc, prometheus.GaugeValue, b.Tokens(), name)
	}
}
