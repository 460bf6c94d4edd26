package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine"
)

// Definition returns the current definition of a workflow.
func (r *Runs) Definition(name string) (*engine.Workflow, bool) { return r.engine.Workflow(name) }

// Definitions returns the current definitions of all workflows.
func (r *Runs) Definitions() []*engine.Workflow { return r.engine.Workflows() }

// Workflows returns the workflows, sorted by name. It includes the [Internal] ones only if internal
// is true.
func (r *Runs) Workflows(ctx context.Context, internal bool) (Workflows, error) {
	all := Workflows{Workflows: []Workflow{}}
	schedules, err := r.engine.Schedules(ctx)
	switch {
	case errors.Is(err, engine.ErrAway): // the schedules are unknown, but the workflows are not
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

// Schedules returns the schedules, sorted by name.
func (r *Runs) Schedules(ctx context.Context) ([]engine.Schedule, error) {
	list, err := r.engine.Schedules(ctx)
	slices.SortFunc(list, func(a, b engine.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return NotNil(list), err
}

// Schedule returns the schedule with the name.
func (r *Runs) Schedule(ctx context.Context, name string) (engine.Schedule, error) {
	list, err := r.Schedules(ctx)
	if err != nil {
		return engine.Schedule{}, err
	}
	var names []string
	for _, s := range list {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return engine.Schedule{}, NewError(CodeNotFound, fmt.Sprintf("there is no schedule %q", Excerpt(name)), strictyaml.SuggestName("schedule", name, names))
}

// PauseSchedule stops a schedule until it is resumed. by names the user.
func (r *Runs) PauseSchedule(ctx context.Context, name, by string) error {
	return r.engine.PauseSchedule(ctx, name, by)
}

// ResumeSchedule ends the pause of a schedule. by names the user.
func (r *Runs) ResumeSchedule(ctx context.Context, name, by string) error {
	return r.engine.ResumeSchedule(ctx, name, by)
}

// RunSchedule starts a run of a schedule's workflow with the schedule's input now. The next start of
// the schedule does not change. by names the user.
func (r *Runs) RunSchedule(ctx context.Context, name, by string) (Started, error) {
	s, err := r.Schedule(ctx, name)
	if err != nil {
		return Started{}, err
	}
	return r.Start(ctx, Start{Workflow: s.Workflow, Input: s.Input}, by)
}

// DeadQuery selects groups of dead runs.
type DeadQuery struct {
	Limit    int  // largest number of groups
	Internal bool // include runs of [Internal] workflows
	Fresh    bool // wait until the groups contain all runs that died before the call
}

// DeadGroups returns the dead runs grouped by similar errors.
func (r *Runs) DeadGroups(ctx context.Context, q DeadQuery) (engine.Groups, error) {
	f := Filter{Internal: q.Internal}
	if q.Fresh {
		return r.engine.FreshDeadGroups(ctx, q.Limit, f.exclude()...)
	}
	return r.engine.DeadGroups(ctx, q.Limit, f.exclude()...)
}
