package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// Schedules has the operations on schedules.
type Schedules struct {
	engine *engine.Engine
	runs   *Runs // starts the runs
}

// List returns the schedules, sorted by name.
func (s *Schedules) List(ctx context.Context) ([]engine.Schedule, error) {
	list, err := s.engine.Schedules(ctx)
	slices.SortFunc(list, func(a, b engine.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return NotNil(list), err
}

// Get returns the schedule with the name.
func (s *Schedules) Get(ctx context.Context, name string) (engine.Schedule, error) {
	list, err := s.List(ctx)
	if err != nil {
		return engine.Schedule{}, err
	}
	var names []string
	for _, found := range list {
		if found.Name == name {
			return found, nil
		}
		names = append(names, found.Name)
	}
	return engine.Schedule{}, NewError(CodeNotFound, fmt.Sprintf("there is no schedule %q", Excerpt(name)), textfmt.SuggestName("schedule", name, names))
}

// Pause stops a schedule until it is resumed. by names the user.
func (s *Schedules) Pause(ctx context.Context, name, by string) error {
	return s.engine.PauseSchedule(ctx, name, by)
}

// Resume ends the pause of a schedule. by names the user.
func (s *Schedules) Resume(ctx context.Context, name, by string) error {
	return s.engine.ResumeSchedule(ctx, name, by)
}

// Run starts a run of a schedule's workflow with the schedule's input now. The next start of
// the schedule does not change. by names the user.
func (s *Schedules) Run(ctx context.Context, name, by string) (Started, error) {
	found, err := s.Get(ctx, name)
	if err != nil {
		return Started{}, err
	}
	return s.runs.Start(ctx, Start{Workflow: found.Workflow, Input: found.Input}, by)
}
