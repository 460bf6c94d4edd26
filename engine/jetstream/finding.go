package jetstream

import (
	"cmp"
	"fmt"
	"slices"
)

// The severities of a [Finding], the worst first.
const (
	Broken = "broken" // it does not work, or loses what was acknowledged
	Weak   = "weak"   // it promises less than it should
	Note   = "note"   // worth knowing
)

// Finding is something about the servers or the configuration that weakens what
// the log promises.
type Finding struct {
	Severity string `json:"severity"`
	What     string `json:"what"` // what was found
	Why      string `json:"why"`  // what that means
	Do       string `json:"do"`   // what to change
}

// findings collects what a check finds.
type findings struct {
	redact func(string) string
	list   []Finding
}

func (f *findings) add(severity, do, why, format string, args ...any) {
	f.list = append(f.list, Finding{severity, f.redact(fmt.Sprintf(format, args...)), why, do})
}

// sorted returns the findings, the worst first.
func (f *findings) sorted() []Finding {
	rank := map[string]int{Broken: 0, Weak: 1, Note: 2}
	slices.SortStableFunc(f.list, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return f.list
}
