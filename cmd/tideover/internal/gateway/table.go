package gateway

import (
	"slices"
	"strings"
)

// table is the providers of one configuration. It never changes.
type table struct {
	names     []string // in the order of the configuration
	providers map[string]*provider
}

// list returns the names for a sentence.
func (t *table) list() string {
	if len(t.names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(t.names)), ", ")
}

// pair is two providers, one of which took over from the other.
type pair struct{ from, to string }

// failovers returns how often requests went from one provider to another, whoever
// was asked for. Those that the configuration has in mind are there from the start,
// so that the first failover is an increase.
func (t *table) failovers() map[pair]float64 {
	sums := map[pair]float64{}
	for name, p := range t.providers {
		for _, to := range p.spec.Fallback {
			sums[pair{name, to}] += 0
		}
		p.tally.mu.Lock()
		for moved, n := range p.tally.moves {
			sums[moved] += float64(n)
		}
		p.tally.mu.Unlock()
	}
	return sums
}
