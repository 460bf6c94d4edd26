package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
)

// spread gives each shard the schedules that belong to it. One whose home is
// another now is taken from the old one before the new one has it: it may start
// nothing for a moment, but never everything twice.
func (e *Engine) spread(ctx context.Context, list []Schedule) error {
	if e.alone != nil {
		return e.setAt(ctx, map[int][]Schedule{0: list})
	}
	homes := map[string]int{}
	parts := map[int][]Schedule{}
	for n := range e.count() {
		parts[n] = nil
	}
	for _, s := range list {
		home, err := e.cluster.home(ctx, &s)
		if err != nil {
			return err
		}
		homes[s.Name] = home
		parts[home] = append(parts[home], s)
	}
	if err := e.evict(ctx, homes); err != nil {
		return err
	}
	return e.setAt(ctx, parts)
}

// evict takes the schedules away that are not where they belong.
func (e *Engine) evict(ctx context.Context, homes map[string]int) error {
	answers, silent, err := e.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return err
	}
	if len(silent) > 0 {
		return fmt.Errorf("schedules: %w, and may have some of them; none was changed", away(silent))
	}
	moved := map[int][]Schedule{}
	for n, a := range answers {
		stays := slices.DeleteFunc(slices.Clone(a.Schedules), func(s Schedule) bool {
			home, wanted := homes[s.Name]
			return wanted && home != n
		})
		if len(stays) < len(a.Schedules) {
			moved[n] = stays
		}
	}
	return e.setAt(ctx, moved)
}

// setAt makes these all the schedules of the shards.
func (e *Engine) setAt(ctx context.Context, parts map[int][]Schedule) error {
	errs := make([]error, e.count())
	var each sync.WaitGroup
	for shard, part := range parts {
		each.Go(func() { _, errs[shard] = e.at(ctx, shard, &call{Op: opSchedule, Schedules: part}) })
	}
	each.Wait()
	return errors.Join(errs...)
}

// home returns the shard of a schedule. It starts runs where it is itself.
func (cl *cluster) home(ctx context.Context, s *Schedule) (int, error) {
	var gathered bool
	var err error
	if w := cl.e.handlers.workflow(s.Workflow); w != nil {
		gathered, err = cl.gathered(ctx, w)
	} else { // others may know it
		var place store.Place
		place, err = store.PlaceOf(ctx, cl.log, s.Workflow, store.Undecided)
		gathered = place == store.Gathered
	}
	if gathered {
		return machine.WorkflowSlot(s.Workflow) % cl.log.Shards(), err
	}
	return machine.KeySlot(s.Name) % cl.log.Shards(), err
}
