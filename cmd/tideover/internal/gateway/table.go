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
