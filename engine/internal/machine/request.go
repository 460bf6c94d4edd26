package machine

import (
	"time"

	"github.com/tideover/tideover/retry"
)

// Start is a request to start a run.
type Start struct {
	ID      ID
	Hash    Hash
	Key     string
	Source  string // who starts the run
	Input   []byte
	At      int64         // when to begin, by the wall clock; 0 means now
	In      time.Duration // how long to wait before the run begins; above 0 it replaces At
	Timeout time.Duration // 0 means the timeout of the definition
	Outputs [][]byte      // outputs of steps that do not run again; nil for the others
	Trace   string        // trace context of the starter; "" for none. A run that repeats another has none

	Continues ID     // the run that it continues, whose key it gets; zero for none
	Inbox     []byte // of a run that continues another one: see Flow.Inbox
	Parent    Parent // the operation that starts the run; zero for none

	// The following fields are set only for a run that repeats another.

	Previous  ID     // the run that it repeats
	Origin    ID     // the first run of the chain of repetitions
	OriginKey string // the key of the run Origin
	Undos     int    // how often the operations of these runs were undone: see AllUndos
}

// Result says how an attempt ended.
type Result struct {
	Run     ID
	Step    int
	Attempt int
	Output  []byte        // output, if the attempt succeeded
	Error   string        // error or note, if it did not
	Failed  bool          // the attempt failed, as Outcome says
	Outcome retry.Outcome // how the attempt failed
	Snooze  time.Duration // if not 0, the attempt has not failed: make the next one after this wait
	Until   int64         // if not 0: like Snooze, until a point in time by the wall clock
	Limited bool          // Snooze or Until is when a service has asked to come back: it uses a window
	Now     bool          // with Limited: the next attempt begins at once
	Release bool          // the attempt has not failed: the process ends, or the run is paused
	Memo    []byte        // memo for the next attempt; nil for none
	Code    string        // code of the failure
	Redo    []byte        // of a function: see EncodeRedo
	Reason  retry.Reason  // of a function that failed for good: why, if that is known better than from Outcome
}

// Succeeded reports whether the attempt succeeded.
func (r *Result) Succeeded() bool {
	return !r.Failed && !r.Release && !r.Limited && r.Snooze == 0 && r.Until == 0
}

// late returns the text of the record for an attempt that ended after its run.
func late(res *Result) string {
	if !res.Succeeded() {
		return res.Error
	}
	return "succeeded too late; the result is dropped"
}

// Signal is a request to send a signal to a run.
type Signal struct {
	Run    ID
	Name   string
	Former []string // names that operations which wait for this signal may have, because they were renamed
	ID     string   // of two signals with the same id the run gets only one
	By     string   // who sends it
	Data   []byte
}

// ChildEnd says how a child has ended.
type ChildEnd struct {
	Parent Parent
	Child  ID
	Reason retry.Reason // 0 if it succeeded
	Code   string       // of its failure
	Text   string       // of its failure
	Output []byte       // if it succeeded
	Undos  int          // see FormerChild
}
