package engine

import (
	"context"
	"fmt"
	"slices"
)

// setSchedules replaces all schedules.
func (r *router) setSchedules(ctx context.Context, list []Schedule) error {
	s := scheduleSpreader{r}
	list = slices.Clone(list)
	for i := range list {
		list[i].Paused = nil
	}
	if err := s.check(ctx, list); err != nil {
		return err
	}
	return s.spread(ctx, list)
}

// schedules returns all schedules. It fails if a shard does not answer.
func (r *router) schedules(ctx context.Context) (list []Schedule, err error) {
	answers, silent, err := r.gather(ctx, &call{Op: opSchedules})
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

// changeSchedule sends the call to the shard that has the schedule with the name c.Text.
func (r *router) changeSchedule(ctx context.Context, c *call) error {
	answers, silent, err := r.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return err
	}
	holders, last := holdersOf(answers, c.Text)
	if len(holders) > 1 { // it was being moved when a process died
		if holders, err = (scheduleSpreader{r}).endMove(ctx, answers, holders, last); err != nil {
			return err
		}
	}
	if len(holders) > 0 {
		_, err := r.at(ctx, holders[0], c)
		return err
	}
	if len(silent) > 0 {
		return fmt.Errorf("schedule %q: %w", c.Text, away(silent))
	}
	return fmt.Errorf("schedule %q: %w", c.Text, ErrNoSchedule)
}
