// Package replay has the stored form of the history of a run, and how package enginetest gets the
// judgement of an engine about code that would continue the run.
package replay

import (
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// Format is the number of the form that History has. A later version may have a higher one.
const Format = 1

// History is the history of a run, as JSON. The fields before Data are for people and tools.
type History struct {
	Format   int       `json:"format"`
	Run      string    `json:"run"`
	Workflow string    `json:"workflow"`
	Version  string    `json:"version,omitempty"` // version of the function of a flow
	State    string    `json:"state"`
	At       time.Time `json:"at"`   // when it was read
	Data     []byte    `json:"data"` // see machine.Extract
}

// Log makes an engine call the function of one run, execute nothing, and report how the function
// would continue the run.
type Log struct {
	journal.Log // empty

	Machine *machine.Machine // see machine.Reopen
	Run     *machine.Run
	Report  func(Verdict) // the first report counts
}

// Verdict says how code would continue a run.
type Verdict struct {
	Parked string   // why the run would be parked; "" if it would not
	Next   []string // operations that the run would execute or wait for next; nil if the function has ended
	Error  string   // the error that the function has returned
	Failed string   // why a call of the function does not come to an end, for example a panic
}
