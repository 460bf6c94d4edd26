package gateway

import (
	"slices"
	"strings"
)

// table is the providers of one configuration. It never changes.
type table struct {
	names     []string // in the order of the configuration
	providers map[string]*provider

	// gone are those of earlier configurations, as they were last, the latest first.
	// Only work that began when they were there can ask for them.
	gone []*provider
}

// maxGone is how many providers that are gone are known. Who changes names that
// often has no work left for the first of them.
const maxGone = 100

// known returns a provider, also one that is gone; nil if there never was one.
func (t *table) known(name string) *provider {
	if p := t.providers[name]; p != nil {
		return p
	}
	if i := slices.IndexFunc(t.gone, func(p *provider) bool { return p.spec.Name == name }); i >= 0 {
		return t.gone[i]
	}
	return nil
}

// remember keeps what this configuration no longer has of the one before.
func (t *table) remember(old *table) {
	for _, name := range old.names {
		if t.providers[name] == nil {
			t.gone = append(t.gone, old.providers[name])
		}
	}
	for _, p := range old.gone {
		if t.providers[p.spec.Name] == nil {
			t.gone = append(t.gone, p)
		}
	}
	t.gone = slices.Clip(t.gone[:min(len(t.gone), maxGone)])
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

// failovers returns how often requests went from one provider to another, for any
// provider that the caller asked for. Pairs of the configuration are there from the
// start, so that the first failover is an increase.
func (t *table) failovers() []FailoverCount {
	sums := map[pair]uint64{}
	for name, p := range t.providers {
		for _, to := range p.spec.Fallback {
			sums[pair{name, to}] += 0
		}
		p.stats.mu.Lock()
		for moved, n := range p.stats.moves {
			sums[moved] += n
		}
		p.stats.mu.Unlock()
	}
	counts := make([]FailoverCount, 0, len(sums))
	for p, n := range sums {
		counts = append(counts, FailoverCount{p.from, p.to, n})
	}
	return counts
}
