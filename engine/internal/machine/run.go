package machine

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// Outcome says how a run ended.
type Outcome uint8

// The outcomes. A dead run can be retried, and is Undecided again then.
const (
	Undecided Outcome = iota
	Succeeded
	Dead
	Canceled
)

var outcomeNames = [...]string{"undecided", "succeeded", "dead", "canceled"}

// String returns the name of the outcome, which is also the name of the run's state.
func (o Outcome) String() string { return outcomeNames[o] }

// State is the state of a run as users see it.
type State uint8

// The states of a run.
const (
	StateScheduled    State = iota // waits for its start time
	StateQueued                    // is due, and waits until a limit allows an attempt to begin
	StateRunning                   // at least one attempt is running
	StateWaiting                   // waits for the time of the next attempt
	StateNeedsHandler              // waits until the handler of a step is registered
	StateSucceeded
	StateDead
	StateCanceled
	StateReplaced // was dead, and was replaced by another run
	StatePaused   // paused by a user
	StateUndoing  // undoes its operations, and ends then
	States        // number of states
)

var stateNames = [...]string{"scheduled", "queued", "running", "waiting", "needs-handler", "succeeded", "dead", "canceled", "replaced", "paused", "undoing"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// Status is the status of a step.
type Status uint8

// The statuses of a step. The numbers are stored.
const (
	Blocked   Status = iota // waits for steps that it depends on
	Waiting                 // waits until StepState.At, or is queued
	Running                 // an attempt has been running since StepState.At
	Complete                // succeeded, and has an output
	Exhausted               // gave up
	NoHandler               // parked: waits for its handler
)

var statusNames = [...]string{"blocked", "waiting", "running", "succeeded", "failed", "needs-handler"}

// String returns the status's name.
func (s Status) String() string { return statusNames[s] }

// Run is a run of a workflow. It is kept small, because there may be a million of them.
type Run struct {
	ID       ID
	Def      *Definition
	Key      string
	Created  int64
	Deadline int64 // 0 means none
	Ended    int64 // 0 means not ended
	Steps    []StepState

	*body
	*extra
	flow    *flow  // nil if the run is not that of a flow
	version uint64 // number of the entry that changed the run last
	index   int32  // index in runIndex.all
	timer   int32  // index of the deadline's timer; noTimer if it is not set
	snap    uint32 // number of the last snapshot that the run was written to

	cold place // where a cold run is; zero if all parts are in memory

	Outcome  Outcome
	Reason   retry.Reason // why the run is dead
	Failing  bool         // a step gave up: the run dies when the running attempts have ended
	Held     bool         // paused: no attempt begins before it is resumed
	Archived bool         // the engine has archived the run; this package does not use it

	running uint16 // number of running attempts
	done    uint16 // number of complete steps
	shown   State  // the state that Workflow.Counts counts
	changeMark
	active  bool // the run is counted in Workflow.Active
	retried bool // the run was dead, and was retried
	delayed bool // the wait for its start is a duration, and not for a point of the wall clock

	restored bool // the run came from a snapshot, and no entry has been applied to it since
}

// StepState is the state of a step of a run.
type StepState struct {
	At      int64         // end of the wait, or begin of the attempt
	First   int64         // when the first attempt that counts for the policy began; 0 for none
	Prev    time.Duration // the last delay that the policy computed
	Attempt int32         // number of attempts that have begun
	Spent   int32         // number of attempts that count for the policy
	timer   int32         // index of the step's timer; noTimer if it is not set
	Lost    uint16        // number of attempts that were lost in a row
	Windows uint16        // number of attempts that returned Limited
	Status  Status
	queued  bool // the step is due, and in its queue
	clock   bool // At is a point of the wall clock, which stays the same when the clock is set
}

// body has the parts of a run that are not in memory if the run is cold.
type body struct {
	Input   []byte
	History []byte // encoded records: see Records
}

// coldBody is the body of all cold runs. Nothing changes it.
var coldBody body

// extra has the fields that most waiting runs do not need. nil means that all are zero.
type extra struct {
	outputs    [][]byte // by step; nil if no step has one
	progress   [][]byte // by step; nil if no step has one
	previous   ID       // the run that this run repeats
	replacedBy ID       // the run that replaced this dead run
	source     string   // who started the run
	until      int64    // end of a postponement while attempts are running; 0 for none
	parent     *Parent  // the operation that has started the run; nil for none
}

var noExtra extra

// read returns x, or fields that are all zero if x is nil. The caller must not change them.
func (x *extra) read() *extra {
	if x == nil {
		return &noExtra
	}
	return x
}

// Output returns the output of a step; nil if it has none yet.
func (x *extra) Output(step int) []byte { return partOf(x.read().outputs, step) }

// Outputs returns the outputs by step, nil for steps that have none yet. It returns nil if no
// step has one. The result must not be changed.
func (x *extra) Outputs() [][]byte { return x.read().outputs }

// Progress returns the last progress or memo of a step; nil if there is none.
func (x *extra) Progress(step int) []byte { return partOf(x.read().progress, step) }

func partOf(parts [][]byte, step int) []byte {
	if step >= len(parts) {
		return nil
	}
	return parts[step]
}

// Previous returns the run that this run repeats; zero if it repeats none.
func (x *extra) Previous() ID { return x.read().previous }

// ReplacedBy returns the run that replaced this dead run; zero if there is none.
func (x *extra) ReplacedBy() ID { return x.read().replacedBy }

// Source returns who started the run.
func (x *extra) Source() string { return x.read().source }

// Origin returns the first run of the chain of repetitions, and its key. It returns the run
// itself and its key if the run repeats no other. For a run that was stored by an earlier
// version the origin is not known: then Origin returns the previous run, and known is false.
// The run must not be cold.
func (r *Run) Origin() (id ID, key string, known bool) {
	if r.Previous().IsZero() {
		return r.ID, r.Key, true
	}
	id, key, _, known = r.chain()
	if !known {
		return r.Previous(), "", false
	}
	return id, key, true
}

// chain returns what the run knows about the chain of repetitions that it is part of.
func (r *Run) chain() (origin ID, key string, undos int, known bool) {
	for rec := range r.Records() {
		if rec.Kind == Started {
			return decodeOrigin(rec.Text)
		}
		break
	}
	return ID{}, "", 0, false
}

// Trace returns the trace context of the starter; "" if there is none. The run must not be cold.
func (r *Run) Trace() string {
	if r.Previous().IsZero() {
		for rec := range r.Records() {
			if rec.Kind == Started {
				return rec.Text
			}
			break
		}
	}
	return ""
}

// encodeOrigin returns the origin as it is stored in the record of a start and in the first
// record of the history. undos is how often the operations of the chain were undone.
func encodeOrigin(id ID, key string, undos int) string {
	name := id.String()
	if undos > 0 {
		name += "~" + strconv.Itoa(undos)
	}
	return name + "\x00" + key
}

func decodeOrigin(text string) (id ID, key string, undos int, ok bool) {
	name, key, ok := strings.Cut(text, "\x00")
	if !ok {
		return ID{}, "", 0, false
	}
	name, count, _ := strings.Cut(name, "~")
	undos, _ = strconv.Atoi(count) // 0 without a count
	id, err := ParseID(name)
	return id, key, undos, err == nil
}

// more returns the extra fields, so that the caller can change them. It allocates them if needed.
func (r *Run) more() *extra {
	if r.extra == nil {
		r.extra = new(extra)
	}
	return r.extra
}

func setOutput(r *Run, step int, out []byte) { setPart(&r.more().outputs, r, step, out) }

func setProgress(r *Run, step int, p []byte) {
	if r.flow != nil && step > 0 {
		r.flow.ops[r.flow.index(step)].progress = p
		return
	}
	setPart(&r.more().progress, r, step, p)
}

func setPart(parts *[][]byte, r *Run, step int, p []byte) {
	if *parts == nil {
		*parts = make([][]byte, len(r.Def.Steps))
	}
	(*parts)[step] = p
}

// InQueue reports whether the step is due, and waits until a limit allows its attempt to begin.
func (r *Run) InQueue(step int) bool { return r.Step(step).queued }

// HasPlace reports whether the run counts towards the limit of the workflow's concurrent runs: it
// has begun, has not ended, and is not paused or parked.
func (r *Run) HasPlace() bool { return r.active }

// Closed reports whether the run has an outcome and no attempt of it is running.
func (r *Run) Closed() bool { return r.Outcome != Undecided && r.running == 0 }

// HasEnded reports whether the run has an outcome, or had one before it was retried. The history
// can't answer this, because its middle may have been removed.
func (r *Run) HasEnded() bool { return r.Outcome != Undecided || r.retried }

// Finished reports whether the run is closed and can't be retried.
func (r *Run) Finished() bool {
	return r.Closed() && (r.Outcome != Dead || !r.ReplacedBy().IsZero())
}

// State returns the state of the run.
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
	case r.IsUndoing() && r.Steps[0].Status != NoHandler:
		return StateUndoing
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
		case (s.Status == Waiting || i > 0 && r.flow != nil) && state == StateScheduled: // a blocked operation waits for a signal
			state = StateWaiting
		}
	}
	if state == StateWaiting && !began {
		return StateScheduled
	}
	return state
}

// Next returns when the first wait of the run ends; 0 if no step waits, or the run is paused or
// has ended.
func (r *Run) Next() (at int64) {
	if r.Outcome != Undecided || r.Held {
		return 0
	}
	return endOfWait(r)
}

// endOfWait returns when the first wait of the run ends, also for a paused run; 0 if no step
// waits.
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

// knows reports whether the run came from a snapshot that includes the entry seq already, so
// that a replay must not apply the entry to it again.
func (r *Run) knows(seq uint64) bool { return r.restored && r.version >= seq }

// waits reports whether the timers of the run's steps are set: the run has not ended, no step
// has given up, and it is not paused.
func (r *Run) waits() bool { return r.Outcome == Undecided && !r.Failing && !r.Held }

// Version returns the number of the entry that changed the run last.
func (r *Run) Version() uint64 { return r.version }

// IsCold reports whether the run's input and history are not in memory.
func (r *Run) IsCold() bool { return r.cold.frame != 0 }

// Attempts returns the number of attempts of all steps.
func (r *Run) Attempts() (n int) {
	if r.flow != nil {
		n = int(r.flow.attempts) - int(r.Steps[0].Attempt) // calls of the function are no attempts
	}
	for i := range r.Steps {
		n += int(r.Steps[i].Attempt)
	}
	return n
}

// Result returns the output of a run that succeeded; nil for other runs. It is the output of the
// step that no other step depends on. If there are several such steps, it is an object with
// their outputs by name.
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
	result := []byte{'{'}
	for _, i := range last {
		name, _ := json.Marshal(r.Def.Steps[i].Name) // can't fail: a string
		result = append(append(result, name...), ':')
		if out := r.Output(i); len(out) > 0 {
			result = append(result, out...)
		} else {
			result = append(result, "null"...)
		}
		result = append(result, ',')
	}
	result[len(result)-1] = '}' // instead of the last comma: a run has at least one last step
	return result
}
