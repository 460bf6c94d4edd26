package gateway

import (
	"strings"
	"sync"

	"github.com/tideover/tideover/limit"
)

// maxRoutes is how many routes of a provider are distinguished; the rest is otherRoute.
const (
	maxRoutes  = 64
	otherRoute = "other"
	maxLabel   = 120 // bytes of a route's name
)

// routeOf returns the route that a request belongs to: its method and its path,
// in which {id} stands for what names one thing among many.
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

// isID reports whether a segment is a number, or contains a word that looks
// generated: long, with digits among its letters. Versions, names of models and
// their dates are none.
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
	hex := 0 // words of a UUID
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
	minWord = 10 // letters and digits that name one thing
	maxWord = 40 // letters: longer ones are no words
)

func isWord(s string) bool {
	return len(s) >= maxWord || len(s) >= minWord && strings.ContainsAny(s, "0123456789")
}

// budgets are what retries at a provider may cost, by route.
type budgets struct {
	redact func(string) string // takes secrets out of the names of routes

	mu     sync.Mutex
	spec   limit.BudgetSpec
	routes map[string]*limit.Budget
	names  []string // in the order in which they came
}

// of returns the budget of a route.
func (b *budgets) of(route string) *limit.Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	if budget := b.routes[route]; budget != nil {
		return budget
	}
	route = b.redact(route) // there may be a key in the path, as some APIs want it
	if len(b.names) >= maxRoutes && b.routes[route] == nil {
		route = otherRoute
	}
	if budget := b.routes[route]; budget != nil {
		return budget
	}
	budget, err := limit.NewBudget(b.spec)
	if err != nil {
		return nil // has been validated; and without one everything is granted
	}
	put(&b.routes, route, budget)
	b.names = append(b.names, route)
	return budget
}

// list returns what is left.
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
