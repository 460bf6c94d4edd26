package machine

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// Outcome is how a run ended. It is recorded once.
type Outcome uint8

// The outcomes. A dead run may be put back to work.
const (
	Undecided Outcome = iota
	Succeeded
	Dead
	Canceled
)

var outcomeNames = [...]string{"undecided", "succeeded", "dead", "canceled"}

// String returns the outcome's name, which is that of the state it leads to.
func (o Outcome) String() string { return outcomeNames[o] }

// State is where a run is, as people see it.
type State uint8

// The states of a run.
const (
	StateScheduled    State = iota // waits for its start
	StateQueued                    // waits for a free place
	StateRunning                   // at least one step is being attempted
	StateWaiting                   // waits before the next attempt
	StateNeedsHandler              // no program here knows the step
	StateSucceeded
	StateDead
	StateCanceled
	StateReplaced // dead, and another run does its work
	StatePaused   // by a user
	States
)

var stateNames = [...]string{"scheduled", "queued", "running", "waiting", "needs-handler", "succeeded", "dead", "canceled", "replaced", "paused"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// Status is where a step is.
type Status uint8

// The statuses of a step. The numbers are stored.
const (
	Blocked   Status = iota // needs others first
	Waiting                 // until At
	Running                 // since At
	Complete                // has an output
	Exhausted               // failed for good
	NoHandler               // parked
)

var statusNames = [...]string{"blocked", "waiting", "running", "succeeded", "failed", "needs-handler"}

// String returns the status's name.
func (s Status) String() string { return statusNames[s] }

// Run is one run of a workflow. There may be a million of them.
type Run struct {
	ID       ID
	Def      *Definition
	Key      string
	Input    []byte
	Created  int64
	Deadline int64 // 0 means none
	Ended    int64 // 0 means not yet
	History  []byte
	Steps    []StepState
	Outcome  Outcome
	Reason   retry.Reason // why it is dead
	Failing  bool         // a step failed for good; the running ones are waited for
	Held     bool         // paused: nothing begins before it is resumed
	Archived bool         // the reader of changes has put it into an archive; of no meaning here

	*extra
	version uint64 // the entry that changed it last
	index   int32  // in runIndex.all
	timer   int32  // of the deadline, in the timers; -1 means none
	snap    uint32 // the last snapshot it was written to

	coldFrame uint32 // the frame that has its input and history; 0 means that they are here
	coldAt    uint32 // where in it

	running uint16
	done    uint16
	shown   State
	changeMark
	active  bool // counted in Workflow.Active
	retried bool // it was dead, and was put back to work

	restored bool // came from a snapshot, and nothing has happened since
}

// StepState is where a step of a run is.
type StepState struct {
	At      int64         // end of the wait, or begin of the attempt
	First   int64         // when the first attempt that counts began
	Prev    time.Duration // the last delay the policy computed
	Attempt int32         // attempts begun
	Spent   int32         // those of them that count for the policy
	timer   int32         // in the timers; -1 means none
	Lost    uint16        // lost ones since the last that was not
	Windows uint16        // times that a service stated when to come back
	Status  Status
	queued  bool // is in its queue
	clock   bool // At was asked for by the calendar
}

// extra has the fields that most waiting runs do not need. A nil one is empty.
type extra struct {
	outputs    [][]byte
	progress   [][]byte
	previous   ID
	replacedBy ID
	source     string
	until      int64 // when an attempt that runs is to be made again
}

var noExtra extra

// read returns the fields, to be read.
func (x *extra) read() *extra {
	if x == nil {
		return &noExtra
	}
	return x
}

// Output returns the output of the step at the position, nil if it has none yet.
func (x *extra) Output(step int) []byte { return partOf(x.read().outputs, step) }

// Outputs returns the outputs of the steps, nil for those that have none yet. It is
// not to be changed, and nil if no step has one.
func (x *extra) Outputs() [][]byte { return x.read().outputs }

// Progress returns the last progress that the step's attempt has reported.
func (x *extra) Progress(step int) []byte { return partOf(x.read().progress, step) }

func partOf(parts [][]byte, step int) []byte {
	if step >= len(parts) {
		return nil
	}
	return parts[step]
}

// Previous returns the run that this one repeats, if it repeats one.
func (x *extra) Previous() ID { return x.read().previous }

// ReplacedBy returns the run that does the work of this dead one.
func (x *extra) ReplacedBy() ID { return x.read().replacedBy }

// Source returns who started the run.
func (x *extra) Source() string { return x.read().source }

// Origin returns the first run of the chain of repetitions that this run ends, and
// its key. They are those of the run itself if it repeats no other. known is false
// for a run that was stored by a version that kept only the previous run: that is
// returned then. The run must not be cold.
func (r *Run) Origin() (id ID, key string, known bool) {
	if r.Previous().IsZero() {
		return r.ID, r.Key, true
	}
	for rec := range r.Records() {
		if rec.Kind == Started {
			id, key, known = decodeOrigin(rec.Text)
		}
		break
	}
	if !known {
		return r.Previous(), "", false
	}
	return id, key, true
}

// encodeOrigin returns the first run of a chain as it is stored: in the start of a
// run, and in the first record of its history.
func encodeOrigin(id ID, key string) string { return id.String() + "\x00" + key }

func decodeOrigin(text string) (id ID, key string, ok bool) {
	name, key, ok := strings.Cut(text, "\x00")
	if !ok {
		return ID{}, "", false
	}
	id, err := ParseID(name)
	return id, key, err == nil
}

// more returns the extra fields, to be changed.
func (r *Run) more() *extra {
	if r.extra == nil {
		r.extra = new(extra)
	}
	return r.extra
}

func setOutput(r *Run, step int, out []byte) { setPart(&r.more().outputs, r, step, out) }

func setProgress(r *Run, step int, p []byte) { setPart(&r.more().progress, r, step, p) }

func setPart(parts *[][]byte, r *Run, step int, p []byte) {
	if *parts == nil {
		*parts = make([][]byte, len(r.Steps))
	}
	(*parts)[step] = p
}

// InQueue reports whether the step is due and has not begun.
func (r *Run) InQueue(step int) bool { return r.Steps[step].queued }

// HasPlace reports whether the run is among those that a limit of the workflow's
// runs counts.
func (r *Run) HasPlace() bool { return r.active }

// Closed reports whether nothing of the run goes on.
func (r *Run) Closed() bool { return r.Outcome != Undecided && r.running == 0 }

// HasEnded reports whether the run has an outcome, or had one before it was put back
// to work. The history can't tell: its middle may be left out.
func (r *Run) HasEnded() bool { return r.Outcome != Undecided || r.retried }

// Finished reports whether the run is closed and can't be put back to work.
func (r *Run) Finished() bool {
	return r.Closed() && (r.Outcome != Dead || !r.ReplacedBy().IsZero())
}

// State returns where the run is.
func (r *Run) State() State {
	switch r.Outcome {
	case Succeeded:
		return StateSucceeded
	case Dead:
		if !r.ReplacedBy().IsZero() {
			return StateReplaced
		}
		return StateDead
	case Canceled:
		return StateCanceled
	case Undecided:
	}
	switch {
	case r.running > 0:
		return StateRunning
	case r.Held:
		return StatePaused
	}
	state, began := StateScheduled, false
	for i := range r.Steps {
		s := &r.Steps[i]
		began = began || s.Attempt > 0 || s.Status == Complete
		switch {
		case s.queued:
			return StateQueued
		case s.Status == NoHandler:
			state = StateNeedsHandler
		case s.Status == Waiting && state == StateScheduled:
			state = StateWaiting
		}
	}
	if state == StateWaiting && !began {
		return StateScheduled
	}
	return state
}

// Next returns when the next wait of the run ends, 0 if it waits for nothing.
func (r *Run) Next() (at int64) {
	if r.Outcome != Undecided || r.Held {
		return 0
	}
	return endOfWait(r)
}

// endOfWait is Next for runs that are paused too.
func endOfWait(r *Run) (at int64) {
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Status == Waiting && (at == 0 || s.At < at) {
			at = s.At
		}
	}
	return at
}

// begun reports whether the run has had an attempt.
func (r *Run) begun() bool {
	return slices.ContainsFunc(r.Steps, func(s StepState) bool { return s.Attempt > 0 })
}

// knows reports whether the run came from a snapshot that was written after the entry
// that is being replayed.
func (r *Run) knows(seq uint64) bool { return r.restored && r.version >= seq }

// waits reports whether the waits of the run end by themselves.
func (r *Run) waits() bool { return r.Outcome == Undecided && !r.Failing && !r.Held }

// Version returns the entry that changed the run last.
func (r *Run) Version() uint64 { return r.version }

// IsCold reports whether the run's input and history are not in memory.
func (r *Run) IsCold() bool { return r.coldFrame != 0 }

// Attempts returns how many attempts were begun.
func (r *Run) Attempts() (n int) {
	for i := range r.Steps {
		n += int(r.Steps[i].Attempt)
	}
	return n
}

// Result returns the output of a run that succeeded: that of its last step, or
// an object of them by name when there are several last ones.
func (r *Run) Result() []byte {
	if r.Outcome != Succeeded {
		return nil
	}
	var last []int
	for i := range r.Def.Steps {
		if len(r.Def.Steps[i].opens) == 0 {
			last = append(last, i)
		}
	}
	if len(last) == 1 {
		return r.Output(last[0])
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for n, i := range last {
		if n > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(r.Def.Steps[i].Name) // a string always can be
		b.Write(name)
		b.WriteByte(':')
		if out := r.Output(i); len(out) > 0 {
			b.Write(out)
		} else {
			b.WriteString("null")
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}
