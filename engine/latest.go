package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
)

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
