// Package doctor looks at the machine for whatever makes the promises of an engine
// weaker than they could be. It finds what is certain and cheap to find, and
// changes nothing.
package doctor

import (
	"fmt"

	"github.com/tideover/tideover/engine/journal"
)

// Finding is something that weakens a promise.
type Finding = journal.Finding

// findings collects them.
type findings []Finding

func (f *findings) add(severity, do, why, format string, args ...any) {
	*f = append(*f, Finding{Severity: severity, What: fmt.Sprintf(format, args...), Why: why, Do: do})
}

// Weakens reports whether one of the findings makes the promise weaker; others are
// only worth knowing.
func Weakens(list []Finding) bool {
	for _, f := range list {
		if f.Severity != journal.Note {
			return true
		}
	}
	return false
}
