package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
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
	opMember     op = "member" // a request to a member: see Engine.AskMembers

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

	def *machine.Definition // of a call within this process; nil if the call came from another one
	due time.Time           // end of the wait of [In], from which In is computed when the call is sent; zero for none
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
	Started    *Started        `json:"started,omitempty"`
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
	Over       bool            `json:"over,omitempty"` // the run that the caller waits for has ended
	Events     *remoteEvents   `json:"happened,omitempty"`
	Reply      json.RawMessage `json:"reply,omitempty"` // of a member
	Adopted    *adoption       `json:"adopted,omitempty"`
	Former     *formerOf       `json:"former,omitempty"`
}

// longestWait is how long performForOthers waits for the end of a run before it answers.
const longestWait = 20 * time.Second

// perform carries out a call and returns the answer.
func (c *commands) perform(ctx context.Context, asked *call) (a answer, err error) {
	q := &c.sh.queries
	switch id, by := asked.ID, asked.By; asked.Op {
	case opStart, opStartFlow, opStartAgain:
		a.Started, err = c.startCalled(ctx, asked.Start)
	case opGet:
		a.Info, err = q.get(ctx, id)
	case opHistory:
		a.History, err = q.history(ctx, id)
	case opHas:
		_, err = q.load(ctx, id)
	case opWait:
		err = q.wait(ctx, id)
		a.Over = err == nil
	case opCancel:
		err = c.change(ctx, asked, (*machine.Machine).Cancel)
	case opRetry:
		err = c.retry(ctx, asked)
	case opWake:
		err = c.changeSteps(ctx, asked, (*machine.Machine).Wake)
	case opPause:
		err = c.change(ctx, asked, (*machine.Machine).Hold)
	case opResume:
		err = c.change(ctx, asked, (*machine.Machine).Free)
	case opPostpone:
		err = c.changeSteps(ctx, asked, func(m *machine.Machine, run machine.ID, by string, now int64) ([]machine.Record, error) {
			return m.Postpone(run, calendar(asked.Until), by, now)
		})
	case opReset:
		err = c.change(ctx, asked, (*machine.Machine).Forgive)
	case opReplay:
		a.Started, err = c.replay(ctx, id, asked.Input, by)
	case opRerun:
		a.Started, err = c.rerun(ctx, id, asked.Step, by)
	case opLatest:
		a.Started, err = c.retryLatest(ctx, asked)
	case opDefinition:
		a.Definition, a.Info, err = q.definition(ctx, id)
	case opList:
		if asked.Filter == nil {
			return a, fmt.Errorf("%w: a list without a filter", errCall)
		}
		a, err = q.list(ctx, *asked.Filter)
	case opGroups:
		if asked.Fresh {
			c.sh.views.refresh(ctx)
		}
		a.Groups, err = q.groups(ctx, asked.Limit, asked.Exclude)
	case opFind:
		a.IDs, err = q.find(ctx, asked.Text, asked.Limit)
	case opStats:
		a.Stats, err = q.stats(ctx)
	case opSchedule:
		a.Schedules, err = c.sh.scheduler.set(ctx, asked.Schedules, asked.Unpaused)
	case opSchedules:
		a.Schedules, err = c.sh.scheduler.list(ctx)
	case opPauseSchedule, opResumeSchedule:
		err = c.sh.scheduler.pause(ctx, asked)
	case opPauseWorkflow, opResumeWorkflow:
		err = c.pauseWorkflow(ctx, asked)
	case opSignal, opSignalOnce:
		a.IDs, err = c.signal(ctx, id, asked.Signal, asked.Op == opSignalOnce)
	case opUndo:
		err = c.change(ctx, asked, (*machine.Machine).Undo)
	case opAbandon:
		err = c.change(ctx, asked, (*machine.Machine).Abandon)
	case opChildEnded:
		err = c.childEnded(ctx, asked)
	case opAdopt:
		a.Adopted, err = c.adopt(ctx, asked)
	case opFormerChild:
		a.Former, err = c.formerChild(ctx, asked)
	case opAnswer:
		err = c.answer(ctx, asked)
	case opKeyed:
		a.IDs, err = c.keyed(ctx, asked.Workflow, asked.Text)
	default:
		err = fmt.Errorf("%w: %q, which a newer version may know", errCall, asked.Op)
	}
	return a, viewClosed(asked.Op, err)
}

// viewClosed converts the error of a view that was closed while it was read: the shard has
// stopped, and another process may own it now. For a repeatable operation the error is
// notAccepted, so that the caller sends the call to that process.
func viewClosed(o op, err error) error {
	if !errors.Is(err, view.ErrClosed) {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrClosed, err)
	if repeatable[o] {
		return notAccepted{err}
	}
	return err
}

// performForOthers is perform for calls that may come from other processes. It answers a wait
// after longestWait even if the run has not ended; then the caller asks again.
func (c *commands) performForOthers(ctx context.Context, asked *call) (answer, error) {
	if asked.Op != opWait {
		return c.perform(ctx, asked)
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	a, err := c.perform(ctx, asked)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return a, err
}

// startCalled carries out opStart. If an earlier call has started the run already, it returns
// that run.
func (c *commands) startCalled(ctx context.Context, s *start) (*Started, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: a start without a run", errCall)
	}
	remote := s.def == nil
	def, err := s.definition()
	if err != nil {
		return nil, err
	}
	id, err := machine.ParseID(s.ID)
	if err != nil {
		return nil, err
	}
	parent, err := s.Parent.parent()
	if err != nil {
		return nil, err
	}
	var origin machine.ID
	if s.Origin != "" {
		if origin, err = machine.ParseID(s.Origin); err != nil {
			return nil, fmt.Errorf("%w: %w", errCall, err)
		}
	}
	if s.Again || remote { // an earlier call may have started it
		switch stored, err := c.sh.queries.stored(ctx, id); {
		case err != nil:
			return nil, err
		case stored:
			return &Started{ID: s.ID}, nil
		}
	}
	return c.start(ctx, def, &machine.Start{
		ID: id, Key: s.Key, Source: s.Source, Input: s.Input, At: s.At, In: s.In, Timeout: s.Timeout, Trace: s.Trace, Parent: parent,
		Previous: origin, Origin: origin, Undos: s.Undos,
	})
}
