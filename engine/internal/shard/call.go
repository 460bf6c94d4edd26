package shard

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// op is the name of an operation that a call asks for.
type op string

// The operations. Their names are sent between processes.
const (
	opStart      op = "start"
	OpStartFlow  op = "start-flow"  // start of a workflow as code, which an older release rejects
	OpStartAgain op = "start-again" // start of a child with the origin of another one, which an older release rejects
	OpGet        op = "get"
	OpHistory    op = "history"
	OpHas        op = "has"
	OpWait       op = "wait"
	OpCancel     op = "cancel"
	OpRetry      op = "retry"
	OpWake       op = "wake"
	OpPause      op = "pause"
	OpResume     op = "resume"
	OpPostpone   op = "postpone"
	OpReset      op = "reset"
	OpReplay     op = "replay"
	OpRerun      op = "rerun"
	OpLatest     op = "latest"     // retry with another definition
	OpDefinition op = "definition" // of a run
	OpList       op = "list"
	OpGroups     op = "groups"
	OpFind       op = "find"
	OpStats      op = "stats"
	OpSchedule   op = "schedule"
	OpSchedules  op = "schedules"
	OpEvents     op = "events" // of a member
	OpSignal     op = "signal"
	OpSignalOnce op = "signal-once"
	OpKeyed      op = "keyed" // the run that has a key
	OpAnswer     op = "answer"
	OpChildEnded op = "child-ended"
	OpAdopt      op = "adopt" // an operation that is called again waits for its former child
	OpUndo       op = "undo"
	OpAbandon    op = "abandon"
	OpMember     op = "member" // a request to a member: see Operator.AskMembers

	OpFormerChild    op = "former-child" // the child of an operation, for a run that repeats its run
	OpPauseSchedule  op = "pause-schedule"
	OpResumeSchedule op = "resume-schedule"
	OpPauseWorkflow  op = "pause-workflow"
	OpResumeWorkflow op = "resume-workflow"
)

// StartOp returns the operation that starts a run of the definition.
func StartOp(def *machine.Definition) op {
	if def.Format() > machine.FirstFormat {
		return OpStartFlow
	}
	return opStart
}

// repeatable has the operations that have the same effect if they are carried out twice.
var repeatable = map[op]bool{
	OpGet: true, OpHistory: true, OpHas: true, OpWait: true, OpDefinition: true, OpList: true, OpGroups: true, OpFind: true,
	OpStats: true, OpSchedule: true, OpSchedules: true, OpSignal: true, OpKeyed: true, OpChildEnded: true, OpAdopt: true, OpFormerChild: true,
	OpPauseSchedule: true, OpResumeSchedule: true, OpPauseWorkflow: true, OpResumeWorkflow: true,
}

// Call is a request to a shard, from this process or another one. It is sent between processes
// as JSON: versions that run side by side must understand it.
type Call struct {
	Op        op              `json:"op"`
	ID        string          `json:"id,omitempty"`
	By        string          `json:"by,omitempty"`
	Step      string          `json:"step,omitempty"`
	Text      string          `json:"text,omitempty"`
	Workflow  string          `json:"workflow,omitempty"` // of keyed, pause-workflow and resume-workflow
	Signal    *Signal         `json:"signal,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Until     time.Time       `json:"until,omitzero"`
	Filter    *info.Filter    `json:"filter,omitempty"`
	Exclude   []string        `json:"exclude,omitempty"`
	Limit     int             `json:"limit,omitempty"`
	Start     *Start          `json:"start,omitempty"`
	Keep      []string        `json:"keep,omitempty"` // of latest: steps whose results are taken over; of former-child: earlier identities of the operation
	Schedules []info.Schedule `json:"schedules,omitempty"`
	Unpaused  []string        `json:"unpaused,omitempty"` // of schedule: those that are removed only if they are not paused
	After     uint64          `json:"after,omitempty"`
	Fresh     bool            `json:"fresh,omitempty"` // of groups, as in Filter
}

// MarkRepeated marks a call that is sent again, because it is not known whether it was
// carried out. It returns false if the call must not be sent again.
func (c *Call) MarkRepeated() bool {
	isStart := c.Op == opStart || c.Op == OpStartFlow || c.Op == OpStartAgain
	if isStart {
		c.Start.Again = true
	}
	return isStart || repeatable[c.Op]
}

// Start is a request to start a run. The caller chooses the id, so that a repeated request
// does not start a second run.
type Start struct {
	ID         string          `json:"id"`
	Definition json.RawMessage `json:"definition"`
	Key        string          `json:"key,omitempty"`
	Source     string          `json:"source,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	At         int64           `json:"at_ns,omitempty"`
	In         time.Duration   `json:"in_ns,omitempty"` // replaces At; an older release knows only At
	Timeout    time.Duration   `json:"timeout_ns,omitempty"`
	Trace      string          `json:"trace,omitempty"`
	Again      bool            `json:"again,omitempty"` // it may have been started already
	Parent     *ChildOf        `json:"parent,omitempty"`
	Origin     string          `json:"origin,omitempty"` // of start-again
	Undos      int             `json:"undos,omitempty"`  // of start-again

	Def *machine.Definition `json:"-"` // of a call within this process; nil if the call came from another one
	Due time.Time           `json:"-"` // end of the wait of engine.In, from which In is computed when the call is sent; zero for none
}

// definition returns the definition of the run. If the call came from another process, it
// parses the text.
func (s *Start) definition() (*machine.Definition, error) {
	if s.Def != nil {
		return s.Def, nil
	}
	return machine.ParseDefinition(s.Definition)
}

// Answer is the answer of a shard to a call.
type Answer struct {
	Error      *fault             `json:"error,omitempty"`
	Started    *startedRun        `json:"started,omitempty"`
	Info       *info.Info         `json:"info,omitempty"`
	History    json.RawMessage    `json:"history,omitempty"`
	Definition json.RawMessage    `json:"definition,omitempty"` // as it is stored
	Page       *info.Page         `json:"page,omitempty"`
	Cursors    []string           `json:"cursors,omitempty"`  // of the runs of the page
	Distance   int                `json:"distance,omitempty"` // of the found runs from the search words
	Groups     []info.Group       `json:"groups,omitempty"`
	IDs        []string           `json:"ids,omitempty"`
	Stats      *info.Stats        `json:"stats,omitempty"`
	Schedules  []info.Schedule    `json:"schedules,omitempty"`
	Over       bool               `json:"over,omitempty"`     // the run that the caller waits for has ended
	Happened   *RemoteEvents      `json:"happened,omitempty"` // written until all members know events
	Events     *RemoteEvents      `json:"events,omitempty"`   // read only
	Reply      json.RawMessage    `json:"reply,omitempty"`    // of a member
	Adopted    *flow.AdoptedChild `json:"adopted,omitempty"`
	Former     *FormerOf          `json:"former,omitempty"`
}

// ChildOf is the parent of a run, as it is sent between processes.
type ChildOf struct {
	Run    string `json:"run"`
	Number int    `json:"number"`
}

// parent returns the parent of a run to start.
func (c *ChildOf) parent() (p machine.Parent, err error) {
	if c == nil {
		return p, nil
	}
	p.Number = c.Number
	p.Run, err = machine.ParseID(c.Run)
	if err != nil || c.Number < 1 || c.Number > math.MaxInt32 {
		return p, fmt.Errorf("%w: a child of operation %d of run %.100q", ErrCall, c.Number, c.Run)
	}
	return p, nil
}

// FormerOf is the former child of an operation in a run that another one repeats.
type FormerOf struct {
	Origin   string `json:"origin,omitempty"` // "" if the run has not called the operation
	Undos    int    `json:"undos,omitempty"`
	Previous string `json:"previous,omitempty"` // the run that the run repeats itself; "" for none
}

// Signal is a signal as it is sent between processes.
type Signal struct {
	Name string          `json:"name"`
	ID   string          `json:"id"`
	By   string          `json:"by,omitempty"`
	Data json.RawMessage `json:"data"`
}

// SetDelay sets how long a start has to wait from now on, if it has the wait of engine.In that ends
// at due. If that is over, the time at, which is one of the caller's wall clock, does not count
// either.
func SetDelay(due time.Time, at *int64, in *time.Duration) {
	if due.IsZero() {
		return
	}
	if *in = max(time.Until(due), 0); *in == 0 {
		*at = 0
	}
}

// startedRun is the answer to a start: see engine.Started.
type startedRun struct {
	ID           string `json:"id"`
	Existing     bool   `json:"existing,omitempty"`
	InputDiffers bool   `json:"input_differs,omitempty"`
}

const maxSignalID = 256

// CheckSignalID returns why the id of a signal is not valid.
func CheckSignalID(id string) error {
	if id == "" || len(id) > maxSignalID || workflow.HasControl(id) {
		return fmt.Errorf("id: %.200q must have 1 to %d bytes without control characters", id, maxSignalID)
	}
	return nil
}
