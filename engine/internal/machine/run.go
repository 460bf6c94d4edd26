package machine

import (
	"encoding/json"
	"iter"
	"slices"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

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
	flow    *Flow  // nil if the run is not that of a flow
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

// place says where a run is in a snapshot.
type place struct {
	frame uint32 // number of the frame, not 0
	at    uint32 // offset in the content of the frame
	size  uint32 // bytes of the encoded run
}

const (
	deadline = -1 // timer.step of the deadline of a run
	noTimer  = -1 // index of a timer that is not set
)

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

// Previous returns the run that this run repeats; zero if it repeats none.
func (x *extra) Previous() ID { return x.read().previous }

// ReplacedBy returns the run that replaced this dead run; zero if there is none.
func (x *extra) ReplacedBy() ID { return x.read().replacedBy }

// Source returns who started the run.
func (x *extra) Source() string { return x.read().source }

// Parent returns the operation that has started the run; zero if there is none.
func (x *extra) Parent() Parent { return valueOf(x.read().parent) }

// valueOf returns what p points to; a zero value if p is nil.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// changeMark says whether a run has changed since the engine last read it for its view.
type changeMark struct{ dirty bool }

// Seen notes that the engine has read the current state of the run for its view.
func (c *changeMark) Seen() { c.dirty = false }

// Dirty reports whether the run has changed since the last call of Seen.
func (c *changeMark) Dirty() bool { return c.dirty }

// Soil marks the run as changed.
func (c *changeMark) Soil() { c.dirty = true }

// more returns the extra fields, so that the caller can change them. It allocates them if needed.
func (r *Run) more() *extra {
	if r.extra == nil {
		r.extra = new(extra)
	}
	return r.extra
}

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
	case r.flow.IsUndoing() && r.Steps[0].Status != NoHandler:
		return StateUndoing
	case r.running > 0:
		return StateRunning
	case r.Held:
		return StatePaused
	}
	return waitState(r)
}

// waitState returns the state of a run that has not ended, and of which no attempt runs.
func waitState(r *Run) State {
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

// hasBegun reports whether the run has had an attempt.
func hasBegun(r *Run) bool {
	return slices.ContainsFunc(r.Steps, func(s StepState) bool { return s.Attempt > 0 })
}

// hasTimers reports whether the timers of the run's steps are set: the run has not ended, no step
// has given up, and it is not paused.
func hasTimers(r *Run) bool { return r.Outcome == Undecided && !r.Failing && !r.Held }

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

// Flow returns the operations and the signals of a run of a flow; nil for other runs.
func (r *Run) Flow() *Flow { return r.flow }

// IsFlow reports whether the run is that of a flow.
func (r *Run) IsFlow() bool { return r.flow != nil }

// IsSuspended reports whether the function of the run waits for operations, and no call of it is
// running or due.
func (r *Run) IsSuspended() bool {
	return r.flow != nil && r.Steps[0].Status == Blocked && !r.Steps[0].queued && hasTimers(r) && !r.flow.IsUndoing()
}

// Continued reports whether the run ended because another run continues its work.
func (r *Run) Continued() bool { return r.Outcome == Succeeded && !r.ReplacedBy().IsZero() }

// IsNeeded reports whether the run has to stay in memory although it has ended: its parent has not
// recorded that, or it has children that are to be canceled.
func (r *Run) IsNeeded() bool {
	p := r.Parent()
	return !p.Run.IsZero() && !p.Told || mustCancel(r)
}

// Records yields the history of the run, oldest first. A record of kind Omitted says how many
// records were removed there. The call of an operation that began its first attempt becomes two
// records.
func (r *Run) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		in := codec.Reader{Data: r.History}
		for len(in.Data) > 0 {
			var rec Record
			rec.read(&in, r.Created)
			if in.Err != nil {
				return
			}
			if rec.Kind != Called || !rec.Begins() {
				if !yield(rec) {
					return
				}
				continue
			}
			if called, begun := splitCalled(&rec); !yield(called) || !yield(begun) {
				return
			}
		}
	}
}

// Pause returns the pause of the run's workflow. It is nil if attempts of the run can begin: the
// workflow is not paused, or the run is undoing.
func (r *Run) Pause() *Pause {
	if r.flow.IsUndoing() {
		return nil
	}
	return r.Def.workflow.Pause
}

// mustCancel reports whether the run has ended and has children that are to be canceled.
func mustCancel(r *Run) bool {
	return r.Outcome != Undecided && r.flow != nil && slices.ContainsFunc(r.flow.ops, func(o op) bool {
		c, isChild := o.child()
		return isChild && !c.Detached
	})
}

// IsFunction reports whether the step is the function of a flow.
func (r *Run) IsFunction(step int) bool { return r.flow != nil && step == 0 }

// isLive reports whether the run has a step with this number, and the step is not an operation that
// has ended.
func isLive(r *Run, n int) bool {
	if r.flow == nil {
		return n < len(r.Steps)
	}
	return n == 0 || r.flow.index(n) >= 0
}

// Step returns the state of a step; nil if it is an operation that has ended.
func (r *Run) Step(n int) *StepState {
	if r.flow == nil || n == 0 {
		return &r.Steps[n]
	}
	return opState(r, n)
}

// opState returns the state of an operation; nil if it has ended.
func opState(r *Run, n int) *StepState {
	i := r.flow.index(n)
	if i < 0 {
		return nil
	}
	return &r.Steps[i+1]
}

// StepDef returns the definition of a step. The step must not be an operation that has ended.
func (r *Run) StepDef(n int) *Step {
	if r.flow == nil || n == 0 {
		return &r.Def.Steps[n]
	}
	return r.flow.definition(n)
}

// StepName returns the name of a step; "" if it is an operation that has ended.
func (r *Run) StepName(n int) string {
	if r.flow == nil || n == 0 {
		return r.Def.Steps[n].Name
	}
	return OpName(r.flow.Identity(n))
}

// Live yields the numbers and states of the steps: of a flow, those of the function and of the
// operations that have not ended.
func (r *Run) Live() iter.Seq2[int, *StepState] {
	return func(yield func(int, *StepState) bool) {
		for i := range r.Steps {
			n := i
			if i > 0 && r.flow != nil {
				n = int(r.flow.ops[i-1].number)
			}
			if !yield(n, &r.Steps[i]) {
				return
			}
		}
	}
}

// Progress returns the last progress or memo of a step; nil if there is none.
func (r *Run) Progress(n int) []byte {
	if r.flow == nil || n == 0 {
		return r.extra.Progress(n)
	}
	if i := r.flow.index(n); i >= 0 {
		return r.flow.ops[i].progress
	}
	return nil
}

// InQueue reports whether the step is due, and waits until a limit allows its attempt to begin.
func (r *Run) InQueue(step int) bool { return r.Step(step).queued }
