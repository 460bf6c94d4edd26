package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/cluster"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Cancel cancels a run. The contexts of its attempts end. Results that their handlers still
// return are only noted in the history. A dead run that is canceled is not listed as dead any
// more. Here and in the methods below, by is the name of the caller, for the history.
func (e *Engine) Cancel(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpCancel, By: by})
}

// Retry continues a dead run: steps that failed get all their attempts again, and the
// results of steps that succeeded are kept. The run keeps its definition;
// [Engine.RetryLatest] continues with the current definition of the workflow.
func (e *Engine) Retry(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpRetry, By: by})
}

// Wake ends the waits of a run, so that the next attempts begin now; those of a paused run
// begin when it is resumed.
func (e *Engine) Wake(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpWake, By: by})
}

// Pause stops a run until [Engine.Resume]: no attempt of it begins. Attempts that are
// running are ended, and made again after Resume. Waits end at the same times as before.
func (e *Engine) Pause(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpPause, By: by})
}

// Resume continues a run that was paused.
func (e *Engine) Resume(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpResume, By: by})
}

// Postpone makes a run wait until a point in time, by the wall clock. Attempts that are
// running are ended and made again at that time; they do not count for the policy.
func (e *Engine) Postpone(ctx context.Context, id string, until time.Time, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpPostpone, Until: until, By: by})
}

// Reset sets the counters of a run to zero: attempts that count for the policy, windows
// ([MaxWindows]) and lost attempts.
func (e *Engine) Reset(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpReset, By: by})
}

// Replay starts a new run with the definition of a run that has ended. The new run has the
// same input, unless input is not nil. If the old run is dead, it becomes replaced and is
// not listed as dead any more. A new input is prepared and checked like that of
// [Engine.Start], if the workflow is registered in this engine.
func (e *Engine) Replay(ctx context.Context, id string, input json.RawMessage, by string) (Started, error) {
	if input != nil {
		i, err := e.Get(ctx, id)
		if err != nil {
			return Started{}, err
		}
		if w := e.process.Handlers.Workflow(i.Workflow); w != nil {
			if input, err = w.RepeatInput(input, i, e.cfg.MaxPayload); err != nil {
				return Started{}, fmt.Errorf("replay: %w", err)
			}
		}
	}
	return e.started(e.router.Of(ctx, id, &shard.Call{Op: shard.OpReplay, Input: input, By: by}))
}

// RerunRequest says which run [Engine.Rerun] repeats, and from which step on.
type RerunRequest struct {
	Run  string // id of a run that has ended
	Step string // first step of the new run
	By   string // name of the caller; the source of the new run
}

// Rerun starts a new run that repeats a part of a run that has ended: the step of the
// request and all steps that depend on it. The new run keeps the results of the other steps
// that succeeded. If the old run is dead, it becomes replaced. The new run has the
// definition of the old one; [Engine.RetryLatest] uses the current definition.
func (e *Engine) Rerun(ctx context.Context, r RerunRequest) (Started, error) {
	return e.started(e.router.Of(ctx, r.Run, &shard.Call{Op: shard.OpRerun, Step: r.Step, By: r.By}))
}

// Undo undoes the operations of a dead run that have an undo, for example after a bug made its
// function panic: see [DoUndo]. The run is dead again then.
func (e *Engine) Undo(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpUndo, By: by})
}

// Abandon is [Engine.Cancel] that does not undo the operations of the run, and ends a run that is
// undoing them at once.
func (e *Engine) Abandon(ctx context.Context, id, by string) error {
	return e.router.Change(ctx, id, &shard.Call{Op: shard.OpAbandon, By: by})
}

// Latest has the options of [Engine.RetryLatest]. The zero value keeps the results of all
// steps that have not changed.
type Latest struct {
	// From is the step of the current definition to begin with. The results of the
	// steps before it are kept, even if those steps have changed.
	From string

	// Input replaces the input of the run. It is prepared and checked like that of
	// [Engine.Start]. No result is kept then. nil means the input of the run. Input and
	// From can't be used together.
	Input json.RawMessage
}

// RemovedStepsError says that the current definition has no steps with the names of some
// steps of the run that succeeded: they were renamed or removed. Their results would be
// lost, or their work done twice. So the caller must set [Latest.From] to the step to
// begin with.
type RemovedStepsError struct {
	Run      string
	Workflow string
	Removed  []string // the steps that succeeded and are not in the current definition
	Steps    []string // the steps of the current definition
}

func (e *RemovedStepsError) Error() string {
	steps, them := "step", "it"
	if len(e.Removed) > 1 {
		steps, them = "steps", "they"
	}
	return fmt.Sprintf("retry with the current definition: %s %s of run %s succeeded, and workflow %q has no such %s now; %s may have been renamed or removed: name the step to begin with",
		steps, strings.Join(e.Removed, ", "), e.Run, e.Workflow, steps, them)
}

// Is makes it an [ErrState].
func (e *RemovedStepsError) Is(target error) bool { return target == ErrState }

// RetryLatest continues a run that has ended, with the current definition of its
// workflow. Like [Engine.Rerun] it starts a new run. The new run keeps the results of
// steps that succeeded and have not changed. It runs the steps that failed, are new or have
// changed, and all steps that depend on those.
//
// A step has not changed if its name, its handler, its arguments and the steps that it
// directly depends on are the same; see [CompareArgs]. Its policy and limits do not count.
// The code of a Go function can't be compared: use [Version] to say that it has changed.
//
// The dead run of a flow continues itself: no new run is started, and its function gets the
// results of all operations that succeeded.
//
// If the current definition has no step with the name of a step that succeeded, the error
// is a [*RemovedStepsError]. The input is that of the old run, passed through the current
// [PrepareInput].
func (e *Engine) RetryLatest(ctx context.Context, id string, o Latest, by string) (Started, error) {
	if o.From != "" && o.Input != nil {
		return Started{}, errors.New("retry with the current definition: a step to begin with and an input can't be combined, since another input changes all results")
	}
	a, err := e.router.Of(ctx, id, &shard.Call{Op: shard.OpDefinition})
	if err != nil {
		return Started{}, err
	}
	before, err := machine.ParseDefinition(a.Definition)
	if err != nil {
		return Started{}, fmt.Errorf("retry with the current definition: run %s: %w", id, err)
	}
	w := e.process.Handlers.Workflow(before.Name)
	if w == nil {
		return Started{}, fmt.Errorf("retry with the current definition: %w: workflow %q of run %s is not registered", ErrState, before.Name, id)
	}
	if err := e.router.CheckFormat(w.Format()); err != nil {
		return Started{}, fmt.Errorf("retry with the current definition: %w", err)
	}
	if before.Flow != w.Def.Flow {
		return Started{}, fmt.Errorf("retry with the current definition: %w: workflow %q is a function in one of the two definitions and has steps in the other; replay run %s", ErrState, before.Name, id)
	}
	if before.Flow && o.Input == nil {
		return e.retryFlow(ctx, id, w, o.From, by)
	}
	input, given := a.Info.Input, o.Input
	var keep []string
	if given == nil {
		given = input
		var removed []string
		if keep, removed, err = w.KeptResults(before, a.Info, o.From); err != nil {
			return Started{}, err
		}
		if len(removed) > 0 {
			return Started{}, &RemovedStepsError{Run: id, Workflow: w.Name(), Removed: removed, Steps: w.StepNames()}
		}
	}
	if input, err = w.RepeatInput(given, a.Info, e.cfg.MaxPayload); err != nil {
		return Started{}, fmt.Errorf("retry with the current definition: %w", err)
	}
	return e.started(e.router.Of(ctx, id, &shard.Call{Op: shard.OpLatest, By: by, Keep: keep, Start: &shard.Start{Definition: w.Def.Text(), Input: input, Def: w.Def}}))
}

// retryFlow continues the dead run of a flow with the current definition. It is the same run:
// its function gets the stored results.
func (e *Engine) retryFlow(ctx context.Context, id string, w *workflow.Workflow, from, by string) (Started, error) {
	if from != "" {
		return Started{}, fmt.Errorf("retry with the current definition: workflow %q is a function, which can't begin with one of its operations (%q)", w.Name(), from)
	}
	err := e.router.Change(ctx, id, &shard.Call{Op: shard.OpRetry, By: by, Start: &shard.Start{Definition: w.Def.Text(), Def: w.Def}})
	return Started{ID: id, e: e}, err
}

// CompareArgs sets the function by which [Engine.RetryLatest] decides whether two
// arguments of a step made by [Call] mean the same work. It is called only for arguments
// that are not the same JSON value: equal values always mean the same work.
func CompareArgs(same func(before, now json.RawMessage) bool) Part {
	return func(b *builder) { b.core.CompareArgs(same) }
}

// PauseWorkflow stops all runs of a workflow: no attempt of them begins until
// [Engine.ResumeWorkflow]. Attempts that are running end as usual. Runs can be started, canceled and
// sent signals; waits end at their times, and timeouts count. A run that undoes its operations
// continues. MaxRuns still applies, and stopped runs keep their places: a dead run that is undone by
// hand may have to wait for a place.
//
// The pause is stored when PauseWorkflow returns, in all shards of a cluster. by names the user, as
// in [Engine.Cancel]. To pause a workflow that is paused changes nothing. If the name is unknown, the
// error is [ErrUnknownWorkflow]. If it is [ErrAway], some shards have stored the pause: call it again.
func (e *Engine) PauseWorkflow(ctx context.Context, name, by string) error {
	if err := e.router.CheckFormat(machine.PauseFormat); err != nil {
		return fmt.Errorf("pause %s: %w", name, err)
	}
	return e.router.ChangeWorkflow(ctx, &shard.Call{Op: shard.OpPauseWorkflow, Workflow: name, By: by})
}

// ResumeWorkflow ends the pause of a workflow. Attempts that have become due begin in the order of
// their times, as many at once as the limits allow.
func (e *Engine) ResumeWorkflow(ctx context.Context, name, by string) error {
	return e.router.ChangeWorkflow(ctx, &shard.Call{Op: shard.OpResumeWorkflow, Workflow: name, By: by})
}

// PausedWorkflows returns the pauses of workflows, by name. If shards do not answer, it returns those
// that the other shards have stored, and an error that matches [ErrAway].
func (e *Engine) PausedWorkflows(ctx context.Context) (map[string]PausedWorkflow, error) {
	s, err := e.Stats(ctx)
	if err == nil && len(s.Silent) > 0 {
		err = fmt.Errorf("paused workflows: %w", cluster.Away(s.Silent))
	}
	paused := map[string]PausedWorkflow{}
	for _, w := range s.Workflows {
		if w.Paused != nil {
			paused[w.Name] = *w.Paused
		}
	}
	return paused, err
}

// SetSchedules replaces all schedules. A schedule that has not changed keeps its next
// start. If a workflow is not registered, the error is [ErrUnknownWorkflow] and nothing
// changes. In a cluster the workflow must be registered in this process, or have been
// started or scheduled before by a process that knows it.
func (e *Engine) SetSchedules(ctx context.Context, list []Schedule) error {
	return e.router.SetSchedules(ctx, list)
}

// Schedules returns all schedules. It fails if a shard does not answer.
func (e *Engine) Schedules(ctx context.Context) ([]Schedule, error) {
	return e.router.Schedules(ctx)
}

// PauseSchedule stops a schedule: it starts no run until [Engine.ResumeSchedule]. The pause is
// stored. by names the user, as in [Engine.Cancel]. To pause a schedule that is paused changes
// nothing. If there is no schedule of the name, the error is [ErrNoSchedule].
func (e *Engine) PauseSchedule(ctx context.Context, name, by string) error {
	return e.router.ChangeSchedule(ctx, &shard.Call{Op: shard.OpPauseSchedule, Text: name, By: by})
}

// ResumeSchedule ends the pause of a schedule. Its next start is the next time of its cron
// expression; starts that it missed while it was paused are not made up for.
func (e *Engine) ResumeSchedule(ctx context.Context, name, by string) error {
	return e.router.ChangeSchedule(ctx, &shard.Call{Op: shard.OpResumeSchedule, Text: name, By: by})
}

// ParseCron returns the first time after the given one at which a cron expression is due.
// It fails if the expression is not valid or is never due.
func ParseCron(text string, after time.Time) (next time.Time, err error) {
	return shard.ParseCron(text, after)
}
