package config

import (
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// providerPolicy reads the policy of a provider, whose retries have a budget
// whatever it says: one that says there is none is refused, not ignored.
func (l *loader) providerPolicy(at strictyaml.Place) retry.Policy {
	p := l.shownPolicy(at)
	if l.unbudgeted(at.Node) && p.Budget == (limit.BudgetSpec{}) {
		at.Bad("budget=none: retries at a provider always have a budget, so that they can't make an outage worse; leave it out for %v, or write a larger one", limit.ProviderBudget())
	}
	return p
}

// unbudgeted returns true if a policy, or the one that it is made from, says
// budget=none.
func (l *loader) unbudgeted(n *strictyaml.Node) bool {
	if b := n.Get("budget"); b != nil {
		return b.Text == "none"
	}
	words := strings.Fields(n.Text)
	return len(words) > 0 && l.spenders[words[0]] || slices.Contains(words, "budget=none")
}
