package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tideover/tideover/engine"
)

// Definitions has the definitions of workflows, and the operations on all runs of a workflow.
type Definitions struct{ engine *engine.Engine }

// Get returns the current definition of a workflow.
func (d *Definitions) Get(name string) (*engine.Workflow, bool) { return d.engine.Workflow(name) }

// All returns the current definitions of all workflows.
func (d *Definitions) All() []*engine.Workflow { return d.engine.Workflows() }

// List returns the workflows, sorted by name. It includes the [Internal] ones only if internal
// is true.
func (d *Definitions) List(ctx context.Context, internal bool) (Workflows, error) {
	all := Workflows{Workflows: []Workflow{}}
	var both sync.WaitGroup // each may wait for shards that do not answer
	var paused map[string]engine.PausedWorkflow
	var pausedErr error
	both.Go(func() { paused, pausedErr = d.engine.PausedWorkflows(ctx) })
	schedules, err := d.engine.Schedules(ctx)
	both.Wait()
	var missing []string
	for _, err := range []error{err, pausedErr} {
		switch {
		case errors.Is(err, engine.ErrAway): // schedules or pauses are unknown, but the workflows are not
			missing = append(missing, err.Error())
		case err != nil:
			return all, err
		}
	}
	all.Missing = strings.Join(slices.Compact(missing), "; ")
	all.Workflows = d.Describe(internal, schedules, paused)
	return all, nil
}

// Describe returns what [Definitions.List] returns, for a caller that has read the schedules and the
// pauses: in a cluster, all members have to answer for each of them.
func (d *Definitions) Describe(internal bool, schedules []engine.Schedule, paused map[string]engine.PausedWorkflow) []Workflow {
	list := []Workflow{}
	for _, flow := range d.engine.Workflows() {
		if internal || !Internal(flow.Name()) {
			w := newWorkflow(flow, schedules)
			if p, isPaused := paused[w.Name]; isPaused {
				w.Paused = &p
			}
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b Workflow) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// newWorkflow returns a workflow with the names of the schedules that start it.
func newWorkflow(flow *engine.Workflow, schedules []engine.Schedule) Workflow {
	out := Workflow{Name: flow.Name(), Timeout: flow.Timeout()}
	for _, step := range flow.Steps() {
		out.Steps = append(out.Steps, Step{step.Name, step.Needs, step.Policy, step.Handler, step.MaxLost})
	}
	for _, c := range schedules {
		if c.Workflow != out.Name {
			continue
		}
		out.Schedules = append(out.Schedules, c.Name)
		if c.Paused == nil && (out.Next == nil || c.Next.Before(*out.Next)) {
			out.Next = &c.Next
		}
	}
	slices.Sort(out.Schedules)
	return out
}

// Pause stops all runs of a workflow until it is resumed, and returns the workflow. by names
// the user.
func (d *Definitions) Pause(ctx context.Context, name, by string) (Workflow, error) {
	return d.change(ctx, name, by, d.engine.PauseWorkflow)
}

// Resume ends the pause of a workflow, and returns the workflow. by names the user.
func (d *Definitions) Resume(ctx context.Context, name, by string) (Workflow, error) {
	return d.change(ctx, name, by, d.engine.ResumeWorkflow)
}

func (d *Definitions) change(ctx context.Context, name, by string, change func(ctx context.Context, name, by string) error) (Workflow, error) {
	if err := Pausable(name); err != nil {
		return Workflow{}, err
	}
	if err := d.Check(ctx, name); err != nil {
		return Workflow{}, err
	}
	if err := change(ctx, name, by); err != nil {
		return Workflow{}, err
	}
	w, err := d.changed(ctx, name)
	if err != nil {
		return Workflow{}, fmt.Errorf("the change is stored, but the workflow can't be read: %w", err)
	}
	return w, nil
}

// changed returns a workflow after it was paused or resumed.
func (d *Definitions) changed(ctx context.Context, name string) (Workflow, error) {
	all, err := d.List(ctx, false)
	if err != nil {
		return Workflow{}, err
	}
	if i := slices.IndexFunc(all.Workflows, func(w Workflow) bool { return w.Name == name }); i >= 0 {
		return all.Workflows[i], nil
	}
	w := Workflow{Name: name, Steps: []Step{}} // it is not defined any more
	paused, err := d.engine.PausedWorkflows(ctx)
	if p, isPaused := paused[name]; isPaused {
		w.Paused = &p
	}
	return w, err
}

// Check returns an error if no workflow has the name now, and no run belongs to a former
// workflow of that name. An empty name is valid.
func (d *Definitions) Check(ctx context.Context, name string) error {
	if _, ok := d.engine.Workflow(name); ok || name == "" {
		return nil
	}
	stats, err := d.engine.Stats(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(stats.Workflows, func(w engine.WorkflowStats) bool { return w.Name == name }) {
		return nil
	}
	page, err := d.engine.List(ctx, engine.Filter{Workflow: name, Limit: 1})
	if err != nil || len(page.Runs) > 0 {
		return err
	}
	return NewError(CodeNotFound, fmt.Sprintf("unknown workflow %q", Excerpt(name)), suggestWorkflow(name, d.engine.Workflows()))
}
