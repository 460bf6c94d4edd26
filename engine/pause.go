package engine

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/engine/internal/cluster"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
)

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
