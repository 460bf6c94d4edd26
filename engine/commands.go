package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
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
