package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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
	var both sync.WaitGroup // each may wait for shards that do not answer
	var paused map[string]engine.PausedWorkflow
	var pausedErr error
	both.Go(func() { paused, pausedErr = r.engine.PausedWorkflows(ctx) })
	schedules, err := r.engine.Schedules(ctx)
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
	all.Workflows = r.Describe(internal, schedules, paused)
	return all, nil
}

// Describe returns what [Runs.Workflows] returns, for a caller that has read the schedules and the
// pauses: in a cluster, all members have to answer for each of them.
func (r *Runs) Describe(internal bool, schedules []engine.Schedule, paused map[string]engine.PausedWorkflow) []Workflow {
	list := []Workflow{}
	for _, flow := range r.engine.Workflows() {
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

// PauseWorkflow stops all runs of a workflow until it is resumed, and returns the workflow. by names
// the user.
func (r *Runs) PauseWorkflow(ctx context.Context, name, by string) (Workflow, error) {
	return r.changeWorkflow(ctx, name, by, r.engine.PauseWorkflow)
}

// ResumeWorkflow ends the pause of a workflow, and returns the workflow. by names the user.
func (r *Runs) ResumeWorkflow(ctx context.Context, name, by string) (Workflow, error) {
	return r.changeWorkflow(ctx, name, by, r.engine.ResumeWorkflow)
}

func (r *Runs) changeWorkflow(ctx context.Context, name, by string, change func(ctx context.Context, name, by string) error) (Workflow, error) {
	if err := Pausable(name); err != nil {
		return Workflow{}, err
	}
	if err := r.CheckWorkflow(ctx, name); err != nil {
		return Workflow{}, err
	}
	if err := change(ctx, name, by); err != nil {
		return Workflow{}, err
	}
	w, err := r.changedWorkflow(ctx, name)
	if err != nil {
		return Workflow{}, fmt.Errorf("the change is stored, but the workflow can't be read: %w", err)
	}
	return w, nil
}

// changedWorkflow returns a workflow after it was paused or resumed.
func (r *Runs) changedWorkflow(ctx context.Context, name string) (Workflow, error) {
	all, err := r.Workflows(ctx, false)
	if err != nil {
		return Workflow{}, err
	}
	if i := slices.IndexFunc(all.Workflows, func(w Workflow) bool { return w.Name == name }); i >= 0 {
		return all.Workflows[i], nil
	}
	w := Workflow{Name: name, Steps: []Step{}} // it is not defined any more
	paused, err := r.engine.PausedWorkflows(ctx)
	if p, isPaused := paused[name]; isPaused {
		w.Paused = &p
	}
	return w, err
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
