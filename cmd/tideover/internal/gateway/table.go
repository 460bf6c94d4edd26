package gateway

import (
	"slices"
	"strings"
)

// table is the providers of one configuration. It never changes.
type table struct {
	names     []string // in the order of the configuration
	providers map[string]*provider

	// gone are those of earlier configurations, as they were last. Nobody can ask
	// for them but work that began when they were there.
	gone map[string]*provider
}

// known returns a provider, also one that is gone; nil if there never was one.
func (t *table) known(name string) *provider {
	if p := t.providers[name]; p != nil {
		return p
	}
	return t.gone[name]
}

// remember keeps what this configuration no longer has of the one before.
func (t *table) remember(old *table) {
	t.gone = map[string]*provider{}
	for _, was := range []map[string]*provider{old.gone, old.providers} {
		for name, p := range was {
			if t.providers[name] == nil {
				t.gone[name] = p
			}
		}
	}
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
