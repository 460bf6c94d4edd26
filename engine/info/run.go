// Package info has the values that programs get from an engine, and give to it: runs, lists, schedules,
// questions, problems. Package engine has them under the same names.
package info

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/retry"
)

// Info describes a run. engine.Engine.Get fills all fields. In lists, Source, Deadline, ReplayOf,
// Origin, OriginKey, Version, Steps, Declared, Operations, Notes and Omitted are not set, and previews
// replace Input and Output.
//
// Info is limited in size. Of a flow with many operations, Steps has at most 1000: those that
// have not ended or have failed first, and the first and last ones of the others. If their
// outputs have more than 256 KiB together, some are left out: see StepInfo.OutputSize.
type Info struct {
	ID          string            `json:"id"`
	Workflow    string            `json:"workflow"`
	Key         string            `json:"key,omitempty"`
	Source      string            `json:"source,omitempty"` // who started the run
	State       string            `json:"state"`            // one of StateScheduled, StateQueued and so on
	Created     time.Time         `json:"created"`
	Updated     time.Time         `json:"updated"`
	Ended       *time.Time        `json:"ended,omitempty"`
	Deadline    *time.Time        `json:"deadline,omitempty"`
	Next        *time.Time        `json:"next,omitempty"`   // when the current wait ends
	Attempts    int               `json:"attempts"`         // of all steps
	Step        string            `json:"step,omitempty"`   // the step or operation that runs, waits or failed
	Error       string            `json:"error,omitempty"`  // the last error
	Reason      string            `json:"reason,omitempty"` // why the run is dead
	Input       json.RawMessage   `json:"input,omitempty"`
	Output      json.RawMessage   `json:"output,omitempty"`
	ReplayOf    string            `json:"replay_of,omitempty"`    // id of the run that this run repeats
	Origin      string            `json:"origin,omitempty"`       // id of the first run of the chain of repetitions; "" if this run repeats no other
	OriginKey   string            `json:"origin_key,omitempty"`   // key of the run Origin
	ReplacedBy  string            `json:"replaced_by,omitempty"`  // id of the run that replaced this dead run
	ContinuedBy string            `json:"continued_by,omitempty"` // id of the run that continues this one: see Again
	Status      string            `json:"status,omitempty"`       // what the function of a flow set by SetStatus
	Tags        map[string]string `json:"tags,omitempty"`         // what the function of a flow set by SetTag
	Parent      string            `json:"parent,omitempty"`       // the run that has started this one by Child
	Undoable    int               `json:"undoable,omitempty"`     // operations of the run that can be undone: see DoUndo
	Asking      bool              `json:"asking,omitempty"`       // it waits for the answer to a question: see StepInfo.Question

	// WorkflowPaused says who has paused the workflow of the run, and when, so that no attempt of
	// the run begins; nil if the workflow is not paused, or the run has ended or is undoing. In
	// lists of an engine with Config.Dir, a run that is undoing and waits for a handler has it, too.
	WorkflowPaused *PausedWorkflow `json:"workflow_paused,omitempty"`

	Version       string       `json:"version,omitempty"`        // version of the function of a flow
	InputPreview  string       `json:"input_preview,omitempty"`  // beginning of the input; only in lists
	OutputPreview string       `json:"output_preview,omitempty"` // the output, if it is short; only in lists
	Steps         []StepInfo   `json:"steps,omitempty"`          // of a flow: the function and the operations that it has called, not all if they are many
	Declared      []DeclaredOp `json:"declared,omitempty"`       // of a flow with declared operations: those, in their order: see Operation
	Operations    *OpCounts    `json:"operations,omitempty"`     // of a flow: numbers of its operations
	Notes         []Note       `json:"notes,omitempty"`          // events of the run as a whole
	Omitted       int          `json:"omitted,omitempty"`        // number of events from the middle of a long history that are not stored any more
}

// Finished reports whether the run has ended. A dead run has ended too, although it can be
// retried.
func (i *Info) Finished() bool {
	return i.State == "succeeded" || i.State == "dead" || i.State == "canceled" || i.State == "replaced"
}

// Err returns why the run has ended without success: [ErrDead], [ErrCanceled] or
// [ErrReplaced], with the step, the reason and the last error. It is nil for a run that
// succeeded or has not ended.
func (i *Info) Err() error {
	var kind error
	switch i.State {
	case StateDead:
		kind = ErrDead
	case StateCanceled:
		kind = ErrCanceled
	case StateReplaced:
		return fmt.Errorf("run %s: %w by %s", i.ID, ErrReplaced, i.ReplacedBy)
	default:
		return nil
	}
	text := ""
	if i.Step != "" && i.State == StateDead {
		text += ", in step " + i.Step
	}
	if i.Reason != "" {
		text += " (" + i.Reason + ")"
	}
	if i.Error != "" {
		text += ": " + i.Error
	}
	return fmt.Errorf("run %s: %w%s", i.ID, kind, text)
}

// The errors that [Info.Err] returns wrap one of these.
var (
	ErrDead     = errors.New("the run is dead")
	ErrCanceled = errors.New("the run was canceled")
	ErrReplaced = errors.New("the run is dead, and was replaced")
)

// Retry returns a summary of the retries of the run.
func (i *Info) Retry() RetryInfo {
	var m RetryInfo
	s := i.retryStep()
	if s == nil {
		return m
	}
	if p, err := retry.Parse(s.Policy); err == nil {
		m.MaxRetries = p.Retries()
	}
	made := s.Spent
	for k, a := range s.Attempts {
		if a.Wait != nil && a.Outcome == "failed" {
			m.Backoff = append(m.Backoff, a.Wait.Delay.Milliseconds())
		}
		if a.Error != "" && a.Outcome != "late" { // the error of a late attempt only says that its context ended
			m.LastError = a.Error
		}
		if k == len(s.Attempts)-1 && (a.Outcome == "running" || a.Outcome == "late" || a.Outcome == "succeeded") {
			made++ // it counts, but is not in Spent, because it has not failed
		}
	}
	m.Attempt = max(made-1, 0)
	if i.Reason == retry.StopTimeout.String() && i.Error != "" {
		m.LastError = i.Error
	}
	return m
}

// retryStep returns the step that RetryInfo describes: the step that Info.Step names, or
// else the step with the latest attempt. It is nil if the run has no steps.
func (i *Info) retryStep() *StepInfo {
	var last *StepInfo
	for k := range i.Steps {
		s := &i.Steps[k]
		if i.Step != "" && s.Name == i.Step {
			return s
		}
		if last == nil || s.lastStart().Compare(last.lastStart()) >= 0 {
			last = s
		}
	}
	return last
}

// RetryInfo is a summary of the retries of a run. For a run with several steps it describes
// the step that [Info].Step names, or else the step that ran last.
type RetryInfo struct {
	Attempt    int     `json:"attemptNumber"`       // number of the last attempt, from 0; only attempts that count for the policy, and one that runs or was canceled
	MaxRetries int     `json:"maxRetries"`          // -1 means no limit
	LastError  string  `json:"lastError,omitempty"` // the error of an attempt, or the timeout of the run
	Backoff    []int64 `json:"backoffHistory"`      // waits after failed attempts, in milliseconds
}

// The states of a run, as [Info.State] has them.
const (
	StateScheduled    = "scheduled"     // its start time is in the future
	StateQueued       = "queued"        // an attempt is due, and waits for a free place, or until its workflow is resumed
	StateRunning      = "running"       // an attempt is running
	StateWaiting      = "waiting"       // waits for the time of the next attempt
	StateNeedsHandler = "needs-handler" // waits until the handler of a step is registered
	StatePaused       = "paused"        // stopped by Pause
	StateUndoing      = "undoing"       // undoes its operations, and ends then: see DoUndo
	StateSucceeded    = "succeeded"
	StateDead         = "dead" // gave up; Retry continues it
	StateCanceled     = "canceled"
	StateReplaced     = "replaced" // was dead, and was replaced by a replay or rerun
)

// StepInfo describes a step of a run.
type StepInfo struct {
	Name       string          `json:"name"`
	Kind       string          `json:"kind,omitempty"`   // in a flow: function, do, map, item, undo, sleep, await, ask, child, children, now, random or skip; "" for a step
	Number     int             `json:"number,omitempty"` // in a flow: number of the operation, as in Task.Operation
	Item       string          `json:"item,omitempty"`   // of an item of a map: the item, shortened: see Labels
	Needs      []string        `json:"needs,omitempty"`
	Called     *time.Time      `json:"called,omitempty"` // in a flow: when the function called the operation first
	Policy     string          `json:"policy"`
	Handler    string          `json:"handler"`
	Status     string          `json:"status"` // blocked, which means not begun, waiting, running, succeeded, failed, canceled, needs-handler; of a map: failed if an item has failed; in a flow also skipped: see Skip; of a function: blocked while it waits for operations
	Next       *time.Time      `json:"next,omitempty"`
	Spent      int             `json:"spent"`                // attempts that count for the policy
	Lost       int             `json:"lost,omitempty"`       // attempts in a row that were lost because the process died
	MaxLost    int             `json:"max_lost"`             // limit of Lost: see MaxLost
	Quarantine string          `json:"quarantine,omitempty"` // if Lost is not 0: what the next attempt waits for, in words
	Held       *Held           `json:"held,omitempty"`       // of a step that is due: why it has not begun; nil if it is about to
	Windows    int             `json:"windows,omitempty"`    // number of times an attempt returned Limited
	MaxWindows int             `json:"max_windows"`          // limit of Windows
	Output     json.RawMessage `json:"output,omitempty"`
	OutputSize int             `json:"output_size,omitempty"` // size of an output that is left out because the outputs of the run are large, in bytes
	Error      string          `json:"error,omitempty"`       // in a flow: why the operation failed
	Code       string          `json:"code,omitempty"`        // in a flow: code of the failure, as in OpError
	Ended      *time.Time      `json:"ended,omitempty"`       // in a flow: when the operation ended
	Items      *OpCounts       `json:"items,omitempty"`       // of a map: numbers of its items
	Progress   json.RawMessage `json:"progress,omitempty"`
	Child      string          `json:"child,omitempty"`    // the run that an operation has started: see Child
	Question   *Question       `json:"question,omitempty"` // what the operation asks; it is open if Status is waiting
	Attempts   []AttemptInfo   `json:"attempts,omitempty"`
	Omitted    int             `json:"omitted,omitempty"` // number of attempts that are not in Attempts, because the history is too long
}

// lastStart returns when the last attempt began; zero if there was none.
func (s *StepInfo) lastStart() time.Time {
	if n := len(s.Attempts); n > 0 {
		return s.Attempts[n-1].Started
	}
	return time.Time{}
}

// Held says why a step that is due has not begun.
type Held struct {
	For   string    `json:"for"`             // one of HeldByPause, HeldByRuns and so on
	Since time.Time `json:"since"`           // when the step was due
	Limit int       `json:"limit,omitempty"` // the limit that is reached; 0 if none is
	By    string    `json:"by,omitempty"`    // who has paused the workflow
}

// What a step that is due may wait for, as [Held.For] has it, in the order in which it is checked.
const (
	HeldByPause      = "pause"      // its workflow is paused
	HeldByRuns       = "runs"       // its workflow has as many runs in progress as it may have
	HeldByAttempts   = "attempts"   // as many attempts of the step run as may run at once
	HeldByQuarantine = "quarantine" // the process died in earlier attempts: see StepInfo.Quarantine
	HeldByIsolation  = "isolation"  // another step runs alone, because the process died in its earlier attempts
	HeldByPlaces     = "places"     // as many attempts, or calls of functions, run in the process as may run at once
)

// String says why the step has not begun.
func (h *Held) String() string {
	switch h.For {
	case HeldByPause:
		if h.By != "" {
			return "its workflow is paused by " + h.By
		}
		return "its workflow is paused"
	case HeldByRuns:
		return fmt.Sprintf("its workflow has as many runs in progress as it may have (%d)", h.Limit)
	case HeldByAttempts:
		return fmt.Sprintf("as many attempts of the step run as may run at once (%d)", h.Limit)
	case HeldByQuarantine:
		return "the process died in earlier attempts"
	case HeldByIsolation:
		return "another step runs alone, because the process died in its earlier attempts"
	case HeldByPlaces:
		return fmt.Sprintf("as many others run in the process as may run at once (%d)", h.Limit)
	}
	return h.For
}

// OpCounts has the numbers of the operations of a flow, or of the items of a map.
type OpCounts struct {
	Total     int `json:"total"` // operations that were called; of a map: all items, also those that have not begun
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Running   int `json:"running"`
	Waiting   int `json:"waiting"`            // were called, and wait for their next attempt, a free place or the end of a sleep
	Canceled  int `json:"canceled,omitempty"` // had not ended when the run ended or began to undo
	Skipped   int `json:"skipped,omitempty"`  // the function has left them out: see Skip
	Omitted   int `json:"omitted,omitempty"`  // of these, not in Info.Steps
}

// DeclaredOp is an operation that a flow declares: see engine.Operation. The run may not have called it
// yet.
type DeclaredOp struct {
	Name  string   `json:"name"`
	Kind  string   `json:"kind"`
	Needs []string `json:"needs,omitempty"`
}

// AttemptInfo is one attempt of a step, and the wait after it.
type AttemptInfo struct {
	Number  int        `json:"number"`
	Omitted int        `json:"omitted,omitempty"` // number of attempts between the one listed before and this one
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"`
	Outcome string     `json:"outcome"` // running, succeeded, failed, lost, released, snoozed, limited, late; of a call of a flow's function also suspended, continued
	Error   string     `json:"error,omitempty"`
	Reason  string     `json:"reason,omitempty"` // why the step gave up after this attempt
	Alone   bool       `json:"alone,omitempty"`  // no other attempt ran in the process when it began, because earlier attempts were lost: see MaxLost
	Wait    *WaitInfo  `json:"wait,omitempty"`
}

// WaitInfo is a wait after an attempt.
type WaitInfo struct {
	Delay time.Duration `json:"delay_ns"` // as it was decided when the attempt ended
	Until time.Time     `json:"until"`
	By    string        `json:"by"`              // what decided the delay: the policy's backoff, a server and so on
	Moved string        `json:"moved,omitempty"` // who prolonged it
	Woken string        `json:"woken,omitempty"` // who ended it early
}

// Note is an event of a run as a whole, or of a step between attempts.
type Note struct {
	At   time.Time `json:"at"`
	What string    `json:"what"` // started, canceled, retried, expired, replaced, parked, unparked, paused, resumed, postponed, reset
	Step string    `json:"step,omitempty"`
	Text string    `json:"text,omitempty"`
}

// Event is a retry.Event with its sequence number in the event stream of the process.
type Event struct {
	Seq uint64 // sequence number; begins at 1 in each process
	retry.Event
	Member string // id of the cluster member in which the event happened; "" for this process
}

// NewEvents is the sequence number after which only new events come.
const NewEvents = ^uint64(0)

// Task describes the attempt that a handler is called for.
//
// Origin and Step together are the same in all attempts of a step, also after
// Engine.Retry, Engine.RetryLatest, Engine.Replay and Engine.Rerun, of the run or of
// its parents: use them as the idempotency key of calls that must not be made twice. Do not use Run or Key: a
// repetition is a run with an id of its own and without a key. Add Undos if it is not 0: an
// operation that was undone must be executed again.
type Task struct {
	Run       string // id of the run
	Workflow  string // name of the run's workflow
	Key       string // the key that the run was started with; "" for none
	Origin    string // id of the first run of the chain of replays and reruns, or of the first child of the operation; the same as Run if the run repeats no other
	OriginKey string // the key that the run Origin was started with

	Step     string          // name of the step; of the undo of an operation: "undo:" and the name of the operation
	Attempt  int             // number of the attempt for the policy, from 1: Spent + 1. An attempt that was lost, released or snoozed is made again with the same number
	Attempts int             // limit of the policy; retry.Unlimited means no limit
	Total    int             // number of the attempt among all attempts of the step, from 1, as in AttemptInfo. It begins with 1 again if a retry of a flow calls an operation again
	Created  time.Time       // when the run was accepted
	Source   string          // who started the run
	Args     json.RawMessage // arguments of a step made by Call
	Input    json.RawMessage // input of the run
	Progress json.RawMessage // what the step last stored by Progress, SaveProgress or Keep
	Spent    int             // earlier attempts that count for the policy
	Windows  int             // number of times an attempt returned Limited

	// Operation is the number of the operation in the run of a flow, from 1. If a retry of the run
	// calls the operation again, it has another number. It is 0 for a step.
	Operation int

	// Undos is how often the operations of the run, and of the runs that it repeats, were undone
	// before. It is 0 for operations that have no undo: see engine.DoUndo.
	Undos int

	// Steps has the outputs of other steps. The engine sets it for the handlers of steps; a test that
	// calls a handler itself may set its own.
	Steps Steps
}

// Steps has the outputs of the steps of a run that a step depends on, directly or through others.
type Steps interface {
	Output(step string) (json.RawMessage, error)
	Before() []string // the names of the steps, in the order of the workflow
}

// Output returns the output of another step of the run. This step must depend on that
// step, directly or through others.
func (t *Task) Output(step string) (json.RawMessage, error) { return t.Steps.Output(step) }

// Before returns the names of the steps that this step depends on, directly or through
// others, in the order of the workflow.
func (t *Task) Before() []string { return t.Steps.Before() }
