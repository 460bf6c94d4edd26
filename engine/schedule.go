package engine

import (
	"context"
	"fmt"
	"slices"
)

// SetSchedules replaces all schedules. A schedule that has not changed keeps its next
// start. If a workflow is not registered, the error is [ErrUnknownWorkflow] and nothing
// changes. In a cluster the workflow must be registered in this process, or have been
// started or scheduled before by a process that knows it.
func (e *Engine) SetSchedules(ctx context.Context, list []Schedule) error {
	s := scheduleSpreader{&e.router}
	list = slices.Clone(list)
	for i := range list {
		list[i].Paused = nil
	}
	if err := s.check(ctx, list); err != nil {
		return err
	}
	return s.spread(ctx, list)
}

// Schedules returns all schedules. It fails if a shard does not answer.
func (e *Engine) Schedules(ctx context.Context) (list []Schedule, err error) {
	answers, silent, err := e.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return nil, err
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("schedules: %w", away(silent))
	}
	names := map[string]bool{}
	for _, a := range answers {
		for _, one := range a.Schedules {
			if !names[one.Name] { // while one is moved, two shards have it
				list = append(list, one)
			}
			names[one.Name] = true
		}
	}
	return list, nil
}

// PauseSchedule stops a schedule: it starts no run until [Engine.ResumeSchedule]. The pause is
// stored. by names the user, as in [Engine.Cancel]. To pause a schedule that is paused changes
// nothing. If there is no schedule of the name, the error is [ErrNoSchedule].
func (e *Engine) PauseSchedule(ctx context.Context, name, by string) error {
	return e.changeSchedule(ctx, &call{Op: opPauseSchedule, Text: name, By: by})
}

// ResumeSchedule ends the pause of a schedule. Its next start is the next time of its cron
// expression; starts that it missed while it was paused are not made up for.
func (e *Engine) ResumeSchedule(ctx context.Context, name, by string) error {
	return e.changeSchedule(ctx, &call{Op: opResumeSchedule, Text: name, By: by})
}

// changeSchedule sends the call to the shard that has the schedule with the name c.Text.
func (e *Engine) changeSchedule(ctx context.Context, c *call) error {
	answers, silent, err := e.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return err
	}
	holders, last := holdersOf(answers, c.Text)
	if len(holders) > 1 { // it was being moved when a process died
		if holders, err = (scheduleSpreader{&e.router}).endMove(ctx, answers, holders, last); err != nil {
			return err
		}
	}
	if len(holders) > 0 {
		_, err := e.at(ctx, holders[0], c)
		return err
	}
	if len(silent) > 0 {
		return fmt.Errorf("schedule %q: %w", c.Text, away(silent))
	}
	return fmt.Errorf("schedule %q: %w", c.Text, ErrNoSchedule)
}
