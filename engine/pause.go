package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// PausedWorkflow describes the pause of a workflow: see [Engine.PauseWorkflow].
type PausedWorkflow struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"`

	// Partly says that some shards of the cluster did not store the pause, or its end: a call
	// has failed half way. Call PauseWorkflow or ResumeWorkflow again.
	Partly bool `json:"partly,omitempty"`
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
	if err := e.checkMembers(machine.PauseFormat); err != nil {
		return fmt.Errorf("pause %s: %w", name, err)
	}
	return e.changeWorkflow(ctx, &call{Op: opPauseWorkflow, Workflow: name, By: by})
}

// ResumeWorkflow ends the pause of a workflow. Attempts that have become due begin in the order of
// their times, as many at once as the limits allow.
func (e *Engine) ResumeWorkflow(ctx context.Context, name, by string) error {
	return e.changeWorkflow(ctx, &call{Op: opResumeWorkflow, Workflow: name, By: by})
}

// PausedWorkflows returns the pauses of workflows, by name. If shards do not answer, it returns those
// that the other shards have stored, and an error that matches [ErrAway].
func (e *Engine) PausedWorkflows(ctx context.Context) (map[string]PausedWorkflow, error) {
	s, err := e.Stats(ctx)
	if err == nil && len(s.Silent) > 0 {
		err = fmt.Errorf("paused workflows: %w", away(s.Silent))
	}
	paused := map[string]PausedWorkflow{}
	for _, w := range s.Workflows {
		if w.Paused != nil {
			paused[w.Name] = *w.Paused
		}
	}
	return paused, err
}

// changeWorkflow sends a call about the workflow c.Workflow to all shards.
func (e *Engine) changeWorkflow(ctx context.Context, c *call) error {
	if err := e.checkKnown(ctx, c.Workflow); err != nil {
		return err
	}
	var silent []int
	var errs []error
	stored := 0
	for n, got := range e.all(ctx, c) {
		switch {
		case got.err == nil:
			stored++
		case e.alone == nil && errors.Is(got.err, ErrAway):
			silent = append(silent, n)
		default:
			errs = append(errs, got.err)
		}
	}
	switch {
	case len(silent) == 0:
	case len(errs) == 0 && stored > 0:
		errs = append(errs, fmt.Errorf("%s: %w, and the others have stored it: repeat the command", c.Workflow, away(silent)))
	default:
		errs = append(errs, fmt.Errorf("%s: %w: repeat the command", c.Workflow, away(silent)))
	}
	return errors.Join(errs...)
}

// checkKnown returns an error if no workflow of the name is registered here, and no shard has, or
// had, runs of it.
func (e *Engine) checkKnown(ctx context.Context, name string) error {
	if _, registered := e.Workflow(name); registered {
		return nil
	}
	s, err := e.Stats(ctx)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(s.Workflows, func(w WorkflowStats) bool { return w.Name == name }):
		return nil
	case len(s.Silent) > 0:
		return fmt.Errorf("workflow %q: not found, but %w", name, away(s.Silent))
	}
	return fmt.Errorf("workflow %q: %w", name, ErrUnknownWorkflow)
}

// pauses has the paused workflows of a shard, for readers in other goroutines than the owner's.
type pauses struct {
	byName atomic.Pointer[map[string]PausedWorkflow]
}

// update copies the pauses of the state.
func (p *pauses) update(m *machine.Machine) {
	list := map[string]PausedWorkflow{}
	for name, w := range m.Workflows() {
		if w.Pause != nil {
			list[name] = *describePause(w.Pause)
		}
	}
	p.byName.Store(&list)
}

// describe sets Info.WorkflowPaused of a run. undoing says that the run undoes its operations: also
// then it may wait for a handler.
func (p *pauses) describe(i *Info, undoing bool) {
	if i.Finished() || undoing {
		return
	}
	if list := p.byName.Load(); list != nil {
		if one, paused := (*list)[i.Workflow]; paused {
			i.WorkflowPaused = &one
		}
	}
}

// describePause returns the pause of a workflow as it is shown; nil for nil.
func describePause(p *machine.Pause) *PausedWorkflow {
	if p == nil {
		return nil
	}
	return &PausedWorkflow{At: time.Unix(0, p.At), By: p.By}
}

// pauseWorkflow carries out opPauseWorkflow and opResumeWorkflow in a shard.
func (c *commands) pauseWorkflow(ctx context.Context, asked *call) error {
	pause := asked.Op == opPauseWorkflow
	if pause {
		if err := c.sh.checkMembers(machine.PauseFormat); err != nil {
			return err
		}
	}
	return c.sh.do(ctx, func(t *turn) error {
		rec, ok := t.o.m.Halt(asked.Workflow, asked.By, pause, t.now)
		if !ok {
			return nil
		}
		t.must(&rec)
		c.sh.pauses.update(t.o.m)
		if pause {
			c.sh.dispatcher.suspendPaused(asked.Workflow)
		}
		if machine.WorkflowSlot(asked.Workflow)%c.sh.shards == c.sh.number { // one event, not one for each shard
			kind := retry.Resumed
			if pause {
				kind = retry.Paused
			}
			t.o.events.add(retry.Event{
				Kind: kind, Time: time.Unix(0, t.now), Name: asked.Workflow,
				Note: strings.TrimSuffix("workflow "+asked.Workflow+", by "+asked.By, ", by "),
			})
		}
		return nil
	})
}

// suspendPaused ends the calls of functions of a paused workflow that only wait for operations: those
// do not begin before the workflow is resumed, and calls of functions are limited.
func (d *dispatcher) suspendPaused(workflow string) {
	for id, c := range d.flows {
		if run, ok := d.o.m.Run(id); ok && !c.stopping && run.Def.Name == workflow && run.Outcome == machine.Undecided {
			d.suspendIdle(c, run)
		}
	}
}

// mergePause merges the pauses of a workflow in two shards.
func mergePause(a, b *PausedWorkflow) *PausedWorkflow {
	if a == nil || b != nil && b.At.Before(a.At) {
		return b
	}
	return a
}
