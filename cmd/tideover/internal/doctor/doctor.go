// Package doctor checks the machine for problems that could lose data, expose a server or stop it.
// Its checks are cheap, report only certain problems, and change nothing.
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

// Weakens reports whether any finding in the list has the severity weak or broken, and not only note.
func Weakens(list []Finding) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Severity != journal.Note })
}

// kind is the type of storage of a folder.
type kind int

const (
	onDisk kind = iota // a local disk, or unknown
	inMemory
	ofNetwork
	ofContainer
)

// disk describes the storage of a folder.
type disk struct {
	kind kind
	name string // type of the file system, such as "nfs"; empty for a local disk
	free uint64 // free bytes for this user
}

// Free returns the number of free bytes on the disk of a folder. It returns an error on systems
// that do not support it.
func Free(path string) (uint64, error) {
	d, err := diskOf(path)
	return d.free, err
}
