package control

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tideover/tideover/engine"
)

// Definition returns the workflow of the name as it is defined now.
func (r *Runs) Definition(name string) (*engine.Workflow, bool) { return r.engine.Workflow(name) }

// Definitions returns all workflows as they are defined now.
func (r *Runs) Definitions() []*engine.Workflow { return r.engine.Workflows() }

// Workflows returns the workflows that can be started, on request with those that are
// [Internal].
func (r *Runs) Workflows(ctx context.Context, internal bool) (Workflows, error) {
	all := Workflows{Workflows: []Workflow{}}
	schedules, err := r.engine.Schedules(ctx)
	switch {
	case errors.Is(err, engine.ErrAway): // the workflows are still known
		all.Missing = err.Error()
	case err != nil:
		return all, err
	}
	for _, flow := range r.engine.Workflows() {
		if internal || !Internal(flow.Name()) {
			all.Workflows = append(all.Workflows, newWorkflow(flow, schedules))
		}
	}
	slices.SortFunc(all.Workflows, func(a, b Workflow) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// newWorkflow returns a workflow with those of the schedules that start it.
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
		if out.Next == nil || c.Next.Before(*out.Next) {
			out.Next = &c.Next
		}
	}
	slices.Sort(out.Schedules)
	return out
}

// Schedules returns the schedules by name.
func (r *Runs) Schedules(ctx context.Context) ([]engine.Schedule, error) {
	list, err := r.engine.Schedules(ctx)
	slices.SortFunc(list, func(a, b engine.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return NotNil(list), err
}

// DeadQuery selects groups of dead runs.
type DeadQuery struct {
	Limit    int  // of groups
	Internal bool // include runs of [Internal] workflows
	Fresh    bool // wait until all runs that died before the call are known
}

// DeadGroups returns the dead runs grouped by their errors.
func (r *Runs) DeadGroups(ctx context.Context, q DeadQuery) (engine.Groups, error) {
	f := Filter{Internal: q.Internal}
	if q.Fresh {
		return r.engine.FreshDeadGroups(ctx, q.Limit, f.exclude()...)
	}
	return r.engine.DeadGroups(ctx, q.Limit, f.exclude()...)
}
