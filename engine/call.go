package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// op is the name of an operation that a call asks for.
type op string

const (
	opStart      op = "start"
	opStartFlow  op = "start-flow"  // start of a workflow as code, which an older release rejects
	opStartAgain op = "start-again" // start of a child with the origin of another one, which an older release rejects
	opGet        op = "get"
	opHistory    op = "history"
	opHas        op = "has"
	opWait       op = "wait"
	opCancel     op = "cancel"
	opRetry      op = "retry"
	opWake       op = "wake"
	opPause      op = "pause"
	opResume     op = "resume"
	opPostpone   op = "postpone"
	opReset      op = "reset"
	opReplay     op = "replay"
	opRerun      op = "rerun"
	opLatest     op = "latest"     // retry with another definition
	opDefinition op = "definition" // of a run
	opList       op = "list"
	opGroups     op = "groups"
	opFind       op = "find"
	opStats      op = "stats"
	opSchedule   op = "schedule"
	opSchedules  op = "schedules"
	opEvents     op = "events" // of a member
	opSignal     op = "signal"
	opSignalOnce op = "signal-once"
	opKeyed      op = "keyed" // the run that has a key
	opAnswer     op = "answer"
	opChildEnded op = "child-ended"
	opAdopt      op = "adopt" // an operation that is called again waits for its former child
	opUndo       op = "undo"
	opAbandon    op = "abandon"
	opMember     op = "member" // a request to a member: see Operator.AskMembers

	opFormerChild    op = "former-child" // the child of an operation, for a run that repeats its run
	opPauseSchedule  op = "pause-schedule"
	opResumeSchedule op = "resume-schedule"
	opPauseWorkflow  op = "pause-workflow"
	opResumeWorkflow op = "resume-workflow"
)

// startOp returns the operation that starts a run of the definition.
func startOp(def *machine.Definition) op {
	if def.Format() > machine.FirstFormat {
		return opStartFlow
	}
	return opStart
}

// repeatable has the operations that have the same effect if they are carried out twice.
var repeatable = map[op]bool{
	opGet: true, opHistory: true, opHas: true, opWait: true, opDefinition: true, opList: true, opGroups: true, opFind: true,
	opStats: true, opSchedule: true, opSchedules: true, opSignal: true, opKeyed: true, opChildEnded: true, opAdopt: true, opFormerChild: true,
	opPauseSchedule: true, opResumeSchedule: true, opPauseWorkflow: true, opResumeWorkflow: true,
}

// call is a request to a shard, from this process or another one. It is sent between processes
// as JSON: versions that run side by side must understand it.
type call struct {
	Op        op              `json:"op"`
	ID        string          `json:"id,omitempty"`
	By        string          `json:"by,omitempty"`
	Step      string          `json:"step,omitempty"`
	Text      string          `json:"text,omitempty"`
	Workflow  string          `json:"workflow,omitempty"` // of keyed, pause-workflow and resume-workflow
	Signal    *signal         `json:"signal,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Until     time.Time       `json:"until,omitzero"`
	Filter    *Filter         `json:"filter,omitempty"`
	Exclude   []string        `json:"exclude,omitempty"`
	Limit     int             `json:"limit,omitempty"`
	Start     *start          `json:"start,omitempty"`
	Keep      []string        `json:"keep,omitempty"` // of latest: steps whose results are taken over; of former-child: earlier identities of the operation
	Schedules []Schedule      `json:"schedules,omitempty"`
	Unpaused  []string        `json:"unpaused,omitempty"` // of schedule: those that are removed only if they are not paused
	After     uint64          `json:"after,omitempty"`
	Fresh     bool            `json:"fresh,omitempty"` // of groups, as in Filter
}

// markRepeated marks a call that is sent again, because it is not known whether it was
// carried out. It returns false if the call must not be sent again.
func (c *call) markRepeated() bool {
	isStart := c.Op == opStart || c.Op == opStartFlow || c.Op == opStartAgain
	if isStart {
		c.Start.Again = true
	}
	return isStart || repeatable[c.Op]
}

// start is a request to start a run. The caller chooses the id, so that a repeated request
// does not start a second run.
type start struct {
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
	Parent     *childOf        `json:"parent,omitempty"`
	Origin     string          `json:"origin,omitempty"` // of start-again
	Undos      int             `json:"undos,omitempty"`  // of start-again

	def *machine.Definition `json:"-"` // of a call within this process; nil if the call came from another one
	due time.Time           `json:"-"` // end of the wait of [In], from which In is computed when the call is sent; zero for none
}

// definition returns the definition of the run. If the call came from another process, it
// parses the text.
func (s *start) definition() (*machine.Definition, error) {
	if s.def != nil {
		return s.def, nil
	}
	return machine.ParseDefinition(s.Definition)
}

// answer is the answer of a shard to a call.
type answer struct {
	Error      *fault          `json:"error,omitempty"`
	Started    *startedRun     `json:"started,omitempty"`
	Info       *Info           `json:"info,omitempty"`
	History    json.RawMessage `json:"history,omitempty"`
	Definition json.RawMessage `json:"definition,omitempty"` // as it is stored
	Page       *Page           `json:"page,omitempty"`
	Cursors    []string        `json:"cursors,omitempty"`  // of the runs of the page
	Distance   int             `json:"distance,omitempty"` // of the found runs from the search words
	Groups     []Group         `json:"groups,omitempty"`
	IDs        []string        `json:"ids,omitempty"`
	Stats      *Stats          `json:"stats,omitempty"`
	Schedules  []Schedule      `json:"schedules,omitempty"`
	Over       bool            `json:"over,omitempty"`     // the run that the caller waits for has ended
	Happened   *remoteEvents   `json:"happened,omitempty"` // written until all members know events
	Events     *remoteEvents   `json:"events,omitempty"`   // read only
	Reply      json.RawMessage `json:"reply,omitempty"`    // of a member
	Adopted    *adoption       `json:"adopted,omitempty"`
	Former     *formerOf       `json:"former,omitempty"`
}

// childOf is the parent of a run, as it is sent between processes.
type childOf struct {
	Run    string `json:"run"`
	Number int    `json:"number"`
}

// parent returns the parent of a run to start.
func (c *childOf) parent() (p machine.Parent, err error) {
	if c == nil {
		return p, nil
	}
	p.Number = c.Number
	p.Run, err = machine.ParseID(c.Run)
	if err != nil || c.Number < 1 || c.Number > math.MaxInt32 {
		return p, fmt.Errorf("%w: a child of operation %d of run %.100q", errCall, c.Number, c.Run)
	}
	return p, nil
}

// adoption says what became of the former child of an operation that is called again.
type adoption struct {
	Run   string            `json:"run,omitempty"`   // the operation waits for this run now
	End   *machine.ChildEnd `json:"end,omitempty"`   // the former child has succeeded
	Undos int               `json:"undos,omitempty"` // neither: the operation needs another child; see machine.FormerChild
}

// formerOf is the former child of an operation in a run that another one repeats.
type formerOf struct {
	Origin   string `json:"origin,omitempty"` // "" if the run has not called the operation
	Undos    int    `json:"undos,omitempty"`
	Previous string `json:"previous,omitempty"` // the run that the run repeats itself; "" for none
}

// signal is a signal as it is sent between processes.
type signal struct {
	Name string          `json:"name"`
	ID   string          `json:"id"`
	By   string          `json:"by,omitempty"`
	Data json.RawMessage `json:"data"`
}

// setDelay sets how long a start has to wait from now on, if it has the wait of [In] that ends
// at due. If that is over, the time at, which is one of the caller's wall clock, does not count
// either.
func setDelay(due time.Time, at *int64, in *time.Duration) {
	if due.IsZero() {
		return
	}
	if *in = max(time.Until(due), 0); *in == 0 {
		*at = 0
	}
}

// startedRun is the answer to a start: see [Started].
type startedRun struct {
	ID           string `json:"id"`
	Existing     bool   `json:"existing,omitempty"`
	InputDiffers bool   `json:"input_differs,omitempty"`
}

const maxSignalID = 256

// checkSignalID returns why the id of a signal is not valid.
func checkSignalID(id string) error {
	if id == "" || len(id) > maxSignalID || workflow.HasControl(id) {
		return fmt.Errorf("id: %.200q must have 1 to %d bytes without control characters", id, maxSignalID)
	}
	return nil
}
