package gateway

import (
	"strings"
	"sync"

	"github.com/tideover/tideover/limit"
)

// maxRoutes is the greatest number of routes of a provider. Requests of further routes
// count for otherRoute.
const (
	maxRoutes  = 64
	otherRoute = "other"
	maxLabel   = 120 // greatest length of a route's name in bytes
)

// routeOf returns the route of a request: its method and its path,
// with {id} in place of identifiers.
func routeOf(method, path string) string {
	if strings.ContainsAny(path, "0123456789") || len(path) > maxLabel {
		path = withoutIDs(path)
	}
	label := strings.ToValidUTF8(method+" "+path, "?")
	if len(label) > maxLabel {
		return otherRoute
	}
	return label
}

func withoutIDs(path string) string {
	segments := strings.Split(path, "/")
	some := false
	for i, s := range segments {
		if isID(s) {
			segments[i], some = "{id}", true
		}
	}
	if !some {
		return path
	}
	return strings.Join(segments, "/")
}

// isID reports whether a path segment is an identifier: a number, or a segment with a word
// that looks generated, that is, long and with digits. Versions and names of models, also
// with a date, are no identifiers.
func isID(segment string) bool {
	if len(segment) >= minWord && !strings.ContainsAny(segment, "-_.:~%@=+ ") {
		return isWord(segment)
	}
	if segment != "" && strings.Trim(segment, "0123456789") == "" {
		return true
	}
	if len(segment) < minWord {
		return false
	}
	hex := 0 // words that may be parts of a UUID
	for word := range strings.FieldsFuncSeq(segment, func(r rune) bool { return strings.ContainsRune("-_.:~%@=+ ", r) }) {
		if isWord(word) {
			return true
		}
		if len(word) >= 4 && strings.Trim(word, "0123456789abcdefABCDEF") == "" {
			hex++
		}
	}
	return hex >= 3
}

const (
	minWord = 10 // shortest word with digits that counts as an identifier
	maxWord = 40 // words of this length and longer always count as identifiers
)

func isWord(s string) bool {
	return len(s) >= maxWord || len(s) >= minWord && strings.ContainsAny(s, "0123456789")
}

// budgets are the retry budgets of a provider, by route.
type budgets struct {
	redact func(string) string // removes secrets from the names of routes

	mu     sync.Mutex
	spec   limit.BudgetSpec
	routes map[string]*limit.Budget
	names  []string // in the order in which they were added
}

// of returns the budget of a route, and adds it if it is new.
func (b *budgets) of(route string) *limit.Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	if budget := b.routes[route]; budget != nil {
		return budget
	}
	route = b.redact(route) // some APIs have the key in the path
	if len(b.names) >= maxRoutes && b.routes[route] == nil {
		route = otherRoute
	}
	if budget := b.routes[route]; budget != nil {
		return budget
	}
	budget, err := limit.NewBudget(b.spec)
	if err != nil {
		return nil // can't happen: the spec is valid. nil allows every retry
	}
	put(&b.routes, route, budget)
	b.names = append(b.names, route)
	return budget
}

// list returns the rest of each budget.
func (b *budgets) list() []Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []Budget{}
	for _, name := range b.names {
		budget := b.routes[name]
		if spec := budget.Spec(); spec.Max > 0 {
			list = append(list, Budget{Route: name, Tokens: budget.Tokens(), Max: spec.Max})
		}
	}
	return list
}
