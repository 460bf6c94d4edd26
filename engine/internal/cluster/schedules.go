package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/shard"
)

// SetSchedules replaces all schedules.
func (r *Router) SetSchedules(ctx context.Context, list []info.Schedule) error {
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

// Schedules returns all schedules. It fails if a shard does not answer.
func (r *Router) Schedules(ctx context.Context) (list []info.Schedule, err error) {
	answers, silent, err := r.gather(ctx, &shard.Call{Op: shard.OpSchedules})
	if err != nil {
		return nil, err
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("schedules: %w", Away(silent))
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

// ChangeSchedule sends the call to the shard that has the schedule with the name c.Text.
func (r *Router) ChangeSchedule(ctx context.Context, c *shard.Call) error {
	answers, silent, err := r.gather(ctx, &shard.Call{Op: shard.OpSchedules})
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
		_, err := r.At(ctx, holders[0], c)
		return err
	}
	if len(silent) > 0 {
		return fmt.Errorf("schedule %q: %w", c.Text, Away(silent))
	}
	return fmt.Errorf("schedule %q: %w", c.Text, shard.ErrNoSchedule)
}
