package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
)

// scheduleSpreader gives each shard the schedules that belong to it.
type scheduleSpreader struct{ *router }

// set makes these all the schedules there are.
func (s scheduleSpreader) set(ctx context.Context, list []Schedule) error {
	if err := s.check(ctx, list); err != nil {
		return err
	}
	return s.spread(ctx, list)
}

// check says what is wrong with the schedules.
func (s scheduleSpreader) check(ctx context.Context, list []Schedule) error {
	names := map[string]bool{}
	var errs []error
	most := s.process.cfg.MaxPayload
	for _, one := range list {
		if _, err := ParseCron(one.Cron, time.Now()); err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", one.Name, err))
		}
		switch {
		case len(one.Input) > most:
			errs = append(errs, fmt.Errorf("schedule %q: input: %w: %d bytes, at most %d", one.Name, ErrTooLarge, len(one.Input), most))
		case len(one.Input) > 0 && !json.Valid(one.Input):
			errs = append(errs, fmt.Errorf("schedule %q: input: not JSON", one.Name))
		}
		if names[one.Name] || one.Name == "" {
			errs = append(errs, fmt.Errorf("schedule %q: needs a name of its own", one.Name))
		}
		names[one.Name] = true
		if known, err := s.knowsWorkflow(ctx, one.Workflow); err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", one.Name, err))
		} else if !known {
			errs = append(errs, fmt.Errorf("schedule %q: workflow %q: %w: register it first", one.Name, one.Workflow, ErrUnknownWorkflow))
		}
	}
	return errors.Join(errs...)
}

// knowsWorkflow reports whether the workflow is registered here, or has been started or
// scheduled in the cluster.
func (s scheduleSpreader) knowsWorkflow(ctx context.Context, name string) (bool, error) {
	if s.process.handlers.workflow(name) != nil {
		return true, nil
	}
	if s.cluster == nil || name == "" {
		return false, nil
	}
	place, err := store.PlaceOf(ctx, s.cluster.log, name, store.Undecided)
	return place != store.Undecided, err
}

// spread gives each shard its schedules. A schedule whose home is another shard now is
// taken from the old one before the new one has it: it may start nothing for a moment, but
// never everything twice.
func (s scheduleSpreader) spread(ctx context.Context, list []Schedule) error {
	if s.alone != nil {
		return s.setAt(ctx, map[int][]Schedule{0: list})
	}
	homes := map[string]int{}
	parts := map[int][]Schedule{}
	for n := range s.count() {
		parts[n] = nil
	}
	for _, one := range list {
		home, err := s.home(ctx, &one)
		if err != nil {
			return err
		}
		homes[one.Name] = home
		parts[home] = append(parts[home], one)
	}
	if err := s.evict(ctx, homes); err != nil {
		return err
	}
	return s.setAt(ctx, parts)
}

// home returns the shard of a schedule. It starts runs where it is itself.
func (s scheduleSpreader) home(ctx context.Context, one *Schedule) (int, error) {
	var gathered bool
	var err error
	if w := s.process.handlers.workflow(one.Workflow); w != nil {
		gathered, err = s.cluster.placement.isGathered(ctx, w)
	} else { // other processes may know it
		var place store.Place
		place, err = store.PlaceOf(ctx, s.cluster.log, one.Workflow, store.Undecided)
		gathered = place == store.Gathered
	}
	if gathered {
		return machine.WorkflowSlot(one.Workflow) % s.count(), err
	}
	return machine.KeySlot(one.Name) % s.count(), err
}

// evict takes the schedules away that are not where they belong.
func (s scheduleSpreader) evict(ctx context.Context, homes map[string]int) error {
	answers, silent, err := s.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return err
	}
	if len(silent) > 0 {
		return fmt.Errorf("schedules: %w, and may have some of them; none was changed", away(silent))
	}
	moved := map[int][]Schedule{}
	for n, a := range answers {
		stays := slices.DeleteFunc(slices.Clone(a.Schedules), func(one Schedule) bool {
			home, wanted := homes[one.Name]
			return wanted && home != n
		})
		if len(stays) < len(a.Schedules) {
			moved[n] = stays
		}
	}
	return s.setAt(ctx, moved)
}

// setAt makes these all the schedules of the shards.
func (s scheduleSpreader) setAt(ctx context.Context, parts map[int][]Schedule) error {
	errs := make([]error, s.count())
	var each sync.WaitGroup
	for shard, part := range parts {
		each.Go(func() { _, errs[shard] = s.at(ctx, shard, &call{Op: opSchedule, Schedules: part}) })
	}
	each.Wait()
	return errors.Join(errs...)
}
