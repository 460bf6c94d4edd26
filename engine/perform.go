package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// longestWait is how long performForOthers waits for the end of a run before it answers.
const longestWait = 20 * time.Second

// perform carries out a call and returns the answer.
func (sh *shard) perform(ctx context.Context, asked *call) (a answer, err error) {
	a, err = commands{sh}.read(ctx, asked)
	return a, viewClosed(asked.Op, err)
}

// read carries out a call that reads runs and schedules, and passes others on.
func (c commands) read(ctx context.Context, asked *call) (a answer, err error) {
	q := queries(c)
	switch id := asked.ID; asked.Op {
	case opGet:
		a.Info, err = q.get(ctx, id)
	case opHistory:
		a.History, err = q.history(ctx, id)
	case opHas:
		_, err = q.load(ctx, id)
	case opWait:
		err = q.wait(ctx, id)
		a.Over = err == nil
	case opDefinition:
		a.Definition, a.Info, err = q.definition(ctx, id)
	case opList:
		if asked.Filter == nil {
			return a, fmt.Errorf("%w: a list without a filter", errCall)
		}
		a, err = q.list(ctx, *asked.Filter)
	case opGroups:
		if asked.Fresh {
			q.refresh(ctx)
		}
		a.Groups, err = q.groups(ctx, asked.Limit, asked.Exclude)
	case opFind:
		a.IDs, err = q.find(ctx, asked.Text, asked.Limit)
	case opStats:
		a.Stats, err = c.sh.stats(ctx)
	case opSchedules:
		a.Schedules, err = ask(ctx, &c.sh.requests, func(recorder) ([]Schedule, error) { return c.sh.scheduler.list(), nil })
	case opFormerChild:
		a.Former, err = c.formerChild(ctx, asked)
	case opKeyed:
		a.IDs, err = c.keyed(ctx, asked.Workflow, asked.Text)
	default:
		return c.begin(ctx, asked)
	}
	return a, err
}

// begin carries out a call that starts a run or changes a workflow or schedules, and passes others on.
func (c commands) begin(ctx context.Context, asked *call) (a answer, err error) {
	switch id, by := asked.ID, asked.By; asked.Op {
	case opStart, opStartFlow, opStartAgain:
		a.Started, err = c.startCalled(ctx, asked.Start)
	case opReplay:
		a.Started, err = c.replay(ctx, id, asked.Input, by)
	case opRerun:
		a.Started, err = c.rerun(ctx, id, asked.Step, by)
	case opLatest:
		a.Started, err = c.retryLatest(ctx, asked)
	case opSchedule:
		a.Schedules, err = c.setSchedules(ctx, asked)
	case opPauseSchedule, opResumeSchedule:
		err = c.sh.do(ctx, func(t recorder) error { return c.sh.scheduler.pause(t, asked) })
	case opPauseWorkflow, opResumeWorkflow:
		err = c.pauseWorkflow(ctx, asked)
	case opSignal, opSignalOnce:
		a.IDs, err = c.signal(ctx, id, asked.Signal, asked.Op == opSignalOnce)
	case opAdopt:
		a.Adopted, err = c.adopt(ctx, asked)
	default:
		err = c.changeRun(ctx, asked)
	}
	return a, err
}

// changeRun carries out a call that changes a run.
func (c commands) changeRun(ctx context.Context, asked *call) error {
	switch asked.Op {
	case opCancel:
		return c.change(ctx, asked, (*machine.Machine).Cancel)
	case opRetry:
		return c.retry(ctx, asked)
	case opWake:
		return c.changeSteps(ctx, asked, (*machine.Machine).Wake)
	case opPause:
		return c.change(ctx, asked, (*machine.Machine).Hold)
	case opResume:
		return c.change(ctx, asked, (*machine.Machine).Free)
	case opPostpone:
		return c.changeSteps(ctx, asked, func(m *machine.Machine, run machine.ID, by string, now int64) ([]machine.Record, error) {
			return m.Postpone(run, workflow.StoredTime(asked.Until), by, now)
		})
	case opReset:
		return c.change(ctx, asked, (*machine.Machine).Forgive)
	case opUndo:
		return c.change(ctx, asked, (*machine.Machine).Undo)
	case opAbandon:
		return c.change(ctx, asked, (*machine.Machine).Abandon)
	case opChildEnded:
		return c.childEnded(ctx, asked)
	case opAnswer:
		return c.answer(ctx, asked)
	default:
		return fmt.Errorf("%w: %q, which a newer version may know", errCall, asked.Op)
	}
}

// setSchedules carries out opSchedule.
func (c commands) setSchedules(ctx context.Context, asked *call) ([]Schedule, error) {
	kept := new([]Schedule)
	err := c.sh.do(ctx, func(t recorder) error {
		*kept = c.sh.scheduler.set(t, asked.Schedules, asked.Unpaused)
		return nil
	})
	if err != nil {
		return nil, err // the owner may still set kept
	}
	return *kept, nil
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
func (sh *shard) performForOthers(ctx context.Context, asked *call) (answer, error) {
	if asked.Op != opWait {
		return sh.perform(ctx, asked)
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	a, err := sh.perform(ctx, asked)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return a, err
}
