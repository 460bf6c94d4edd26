package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// longestWait is how long PerformForOthers waits for the end of a run before it answers.
const longestWait = 20 * time.Second

// Perform carries out a call and returns the answer.
func (sh *Shard) Perform(ctx context.Context, asked *Call) (a Answer, err error) {
	a, err = commands{sh}.read(ctx, asked)
	return a, viewClosed(asked.Op, err)
}

// read carries out a call that reads runs and schedules, and passes others on.
func (c commands) read(ctx context.Context, asked *Call) (a Answer, err error) {
	q := queries(c)
	switch id := asked.ID; asked.Op {
	case OpGet:
		a.Info, err = q.get(ctx, id)
	case OpHistory:
		a.History, err = q.history(ctx, id)
	case OpHas:
		_, err = q.load(ctx, id)
	case OpWait:
		err = q.wait(ctx, id)
		a.Over = err == nil
	case OpDefinition:
		a.Definition, a.Info, err = q.definition(ctx, id)
	case OpList:
		if asked.Filter == nil {
			return a, fmt.Errorf("%w: a list without a filter", ErrCall)
		}
		a, err = q.list(ctx, *asked.Filter)
	case OpGroups:
		if asked.Fresh {
			q.refresh(ctx)
		}
		a.Groups, err = q.groups(ctx, asked.Limit, asked.Exclude)
	case OpFind:
		a.IDs, err = q.find(ctx, asked.Text, asked.Limit)
	case OpStats:
		a.Stats, err = q.stats(ctx)
	case OpSchedules:
		a.Schedules, err = ask(ctx, &c.sh.requests, func(Recorder) ([]info.Schedule, error) { return c.sh.scheduler.list(), nil })
	case OpFormerChild:
		a.Former, err = c.formerChild(ctx, asked)
	case OpKeyed:
		a.IDs, err = c.keyed(ctx, asked.Workflow, asked.Text)
	default:
		return c.begin(ctx, asked)
	}
	return a, err
}

// begin carries out a call that starts a run or changes a workflow or schedules, and passes others on.
func (c commands) begin(ctx context.Context, asked *Call) (a Answer, err error) {
	switch id, by := asked.ID, asked.By; asked.Op {
	case opStart, OpStartFlow, OpStartAgain:
		a.Started, err = c.startCalled(ctx, asked.Start)
	case OpReplay:
		a.Started, err = c.replay(ctx, id, asked.Input, by)
	case OpRerun:
		a.Started, err = c.rerun(ctx, id, asked.Step, by)
	case OpLatest:
		a.Started, err = c.retryLatest(ctx, asked)
	case OpSchedule:
		a.Schedules, err = change(ctx, &c.sh.requests, func(t Recorder) ([]info.Schedule, error) {
			return c.sh.scheduler.set(t, asked.Schedules, asked.Unpaused), nil
		})
	case OpPauseSchedule, OpResumeSchedule:
		err = c.sh.Do(ctx, func(t Recorder) error { return c.sh.scheduler.pause(t, asked) })
	case OpPauseWorkflow, OpResumeWorkflow:
		err = c.pauseWorkflow(ctx, asked)
	case OpSignal, OpSignalOnce:
		a.IDs, err = c.signal(ctx, id, asked.Signal, asked.Op == OpSignalOnce)
	case OpAdopt:
		a.Adopted, err = c.adopt(ctx, asked)
	default:
		err = c.changeRun(ctx, asked)
	}
	return a, err
}

// decisions has the operations that store one record about a run.
var decisions = map[op]func(m *machine.Machine, run machine.ID, by string, now int64) (machine.Record, error){
	OpCancel: (*machine.Machine).Cancel, OpPause: (*machine.Machine).Hold, OpResume: (*machine.Machine).Free,
	OpReset: (*machine.Machine).Forgive, OpUndo: (*machine.Machine).Undo, OpAbandon: (*machine.Machine).Abandon,
}

// changeRun carries out a call that changes a run.
func (c commands) changeRun(ctx context.Context, asked *Call) error {
	switch asked.Op {
	case OpRetry:
		return c.retry(ctx, asked)
	case OpWake:
		return c.changeSteps(ctx, asked, (*machine.Machine).Wake)
	case OpPostpone:
		return c.changeSteps(ctx, asked, func(m *machine.Machine, run machine.ID, by string, now int64) ([]machine.Record, error) {
			return m.Postpone(run, workflow.StoredTime(asked.Until), by, now)
		})
	case OpChildEnded:
		return c.childEnded(ctx, asked)
	case OpAnswer:
		return c.answer(ctx, asked)
	}
	decide := decisions[asked.Op]
	if decide == nil {
		return fmt.Errorf("%w: %q, which a newer version may know", ErrCall, asked.Op)
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t Recorder, run machine.ID) error {
		rec, err := decide(t.State(), run, CallerName(asked.By), t.Now())
		if err == nil {
			t.Record(rec)
		}
		return err
	})
}

// viewClosed converts the error of a view that was closed while it was read: the shard has
// stopped, and another process may own it now. For a repeatable operation the error is
// NotAccepted, so that the caller sends the call to that process.
func viewClosed(o op, err error) error {
	if !errors.Is(err, view.ErrClosed) {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrClosed, err)
	if repeatable[o] {
		return NotAccepted{err}
	}
	return err
}

// PerformForOthers is perform for calls that may come from other processes. It answers a wait
// after longestWait even if the run has not ended; then the caller asks again.
func (sh *Shard) PerformForOthers(ctx context.Context, asked *Call) (Answer, error) {
	if asked.Op != OpWait {
		return sh.Perform(ctx, asked)
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	a, err := sh.Perform(ctx, asked)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return a, err
}

// Start starts a run in the shard.
func (sh *Shard) Start(ctx context.Context, def *machine.Definition, s *machine.Start) (*startedRun, error) {
	if err := CheckInput(def, s, sh.process.Settings.MaxPayload); err != nil {
		return nil, err
	}
	if err := sh.process.Peers.CheckFormat(def.Format()); err != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, err)
	}
	s.Hash = def.Hash()
	r := &request{start: s, def: def, done: make(chan struct{})}
	err := sh.send(ctx, sh.starts, r)
	if _, stopped := errors.AsType[NotAccepted](err); stopped {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, err)
	}
	st := &startedRun{ID: r.id.String(), Existing: r.existing}
	if r.existing && !r.sameInput {
		run, err := queries{sh}.load(ctx, st.ID)
		switch {
		case errors.Is(err, machine.ErrUnknown): // the key is still known, but the run was deleted
		case err != nil:
			return nil, fmt.Errorf("start %s: the key is that of run %s, whose input can't be compared: %w", def.Name, st.ID, err)
		default:
			st.InputDiffers = !workflow.SameJSON(run.Input, s.Input)
		}
	}
	return st, nil
}

// CheckInput returns an error if the input of a start is too large.
func CheckInput(def *machine.Definition, s *machine.Start, most int) error {
	if err := workflow.CheckSize(len(s.Input), most); err != nil {
		return fmt.Errorf("start %s: %w", def.Name, err)
	}
	return nil
}

// startCalled carries out OpStart. If an earlier call has started the run already, it returns
// that run.
func (c commands) startCalled(ctx context.Context, s *Start) (*startedRun, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: a start without a run", ErrCall)
	}
	remote := s.Def == nil
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
			return nil, fmt.Errorf("%w: %w", ErrCall, err)
		}
	}
	if s.Again || remote { // an earlier call may have started it
		switch stored, err := queries(c).stored(ctx, id); {
		case err != nil:
			return nil, err
		case stored:
			return &startedRun{ID: s.ID}, nil
		}
	}
	return c.sh.Start(ctx, def, &machine.Start{
		ID: id, Key: s.Key, Source: s.Source, Input: s.Input, At: s.At, In: s.In, Timeout: s.Timeout, Trace: s.Trace, Parent: parent,
		Previous: origin, Origin: origin, Undos: s.Undos,
	})
}
