// Package doctor checks the machine for problems that could lose data, expose a server or stop it.
// It reports only what is certain and cheap to find, and changes nothing.
package doctor

import (
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine/journal"
)

// Finding is a problem, or a note, with its reason and what to do.
type Finding = journal.Finding

// findings collects findings.
type findings []Finding

func (f *findings) add(severity, do, why, format string, args ...any) {
	*f = append(*f, Finding{Severity: severity, What: fmt.Sprintf(format, args...), Why: why, Do: do})
}

// Weakens reports whether a finding is weak or broken. The others are only notes.
func Weakens(list []Finding) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Severity != journal.Note })
}

// kind is the type of storage of a folder.
type kind int

const (
	onDisk kind = iota // or unknown
	inMemory
	ofNetwork
	ofContainer
)

// disk describes the storage of a folder.
type disk struct {
	kind kind
	name string // of the file system
	free uint64 // free bytes for this user
}

// Free returns the number of free bytes on the disk of a folder. It returns an error on systems
// that do not support it.
func Free(path string) (uint64, error) {
	d, err := diskOf(path)
	return d.free, err
}
