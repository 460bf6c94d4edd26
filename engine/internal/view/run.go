package view

import (
	"time"
	"unicode/utf8"
)

// Preview is how many bytes of Input and Output a list shows.
const Preview = 256

// Run is what is known of a run. Times are kept to the microsecond.
type Run struct {
	ID         string // cheapest if it is a ULID in lower case with the millisecond of Created
	Workflow   string
	Key        string // idempotency key; may be empty
	State      string
	Created    time.Time // must not change: the first one decides the place in lists
	Updated    time.Time
	Ended      time.Time // zero: not yet
	Next       time.Time // when the next thing is due; zero: nothing is
	Attempts   int       // in all steps
	Step       string    // that is running, waiting or failed
	Error      string    // the last one, "" if there is none
	Reason     string    // why it stopped
	Input      []byte
	Output     []byte
	Detail     []byte // of steps and history; only Get returns it
	ReplacedBy string // the run that replays this one
}

// Batch is what is written in one transaction: first the runs to put, in order,
// then the ids to delete.
type Batch struct {
	Cursor uint64 // sequence of the log up to which the view is complete then
	Put    []Run
	Delete []string
}

// preview returns the beginning of a payload that lists have, cut between two characters.
func preview(p []byte) []byte {
	if len(p) <= Preview {
		return p
	}
	for n := Preview; n > Preview-utf8.UTFMax; n-- {
		if utf8.RuneStart(p[n]) {
			return p[:n]
		}
	}
	return p[:Preview]
}
