package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/workflow"
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

// scheduleSpreader assigns schedules to shards.
type scheduleSpreader struct{ *Router }

// check returns the errors of all schedules.
func (s scheduleSpreader) check(ctx context.Context, list []info.Schedule) error {
	names := map[string]bool{}
	var errs []error
	for _, one := range list {
		report := func(err error) {
			if err != nil {
				errs = append(errs, fmt.Errorf("schedule %q: %w", one.Name, err))
			}
		}
		_, err := shard.ParseCron(one.Cron, time.Now())
		report(err)
		report(workflow.CheckSize(len(one.Input), s.process.Settings.MaxPayload))
		if len(one.Input) > 0 && !json.Valid(one.Input) {
			report(errors.New("input: not JSON"))
		}
		if names[one.Name] || one.Name == "" {
			report(errors.New("needs a name that no other schedule has"))
		}
		names[one.Name] = true
		report(s.checkWorkflow(ctx, one.Workflow))
	}
	return errors.Join(errs...)
}

// checkWorkflow returns an error if the workflow is not registered here, and has not been started or
// scheduled in the cluster.
func (s scheduleSpreader) checkWorkflow(ctx context.Context, name string) error {
	if s.process.Handlers.Workflow(name) != nil {
		return nil
	}
	if s.cluster != nil && name != "" {
		if place, err := store.PlaceOf(ctx, s.cluster.log, name, store.Undecided); err != nil || place != store.Undecided {
			return err
		}
	}
	return fmt.Errorf("workflow %q: %w: register it first", name, shard.ErrUnknownWorkflow)
}

// spread gives each shard its schedules. A schedule that belongs to another shard now is
// removed from the old shard before it is added to the new one. It may miss a start in
// between, but never starts a run twice. One that is paused is added before it is removed: it
// starts nothing, and the pause is not lost if this process dies in between. If a schedule that is to
// be removed was paused meanwhile, it stays, and spread begins again.
func (s scheduleSpreader) spread(ctx context.Context, list []info.Schedule) error {
	if s.alone != nil {
		_, err := s.setAt(ctx, map[int]*shard.Call{0: {Schedules: list}})
		return err
	}
	for {
		if done, err := s.trySpread(ctx, slices.Clone(list)); done || err != nil {
			return err
		}
	}
}

// trySpread is spread. done is false if a schedule that is to be removed was paused meanwhile.
func (s scheduleSpreader) trySpread(ctx context.Context, list []info.Schedule) (done bool, err error) {
	homes := map[string]int{}
	parts := map[int]*shard.Call{}
	for n := range s.Count() {
		parts[n] = new(shard.Call)
	}
	for _, one := range list {
		home, err := s.home(ctx, &one)
		if err != nil {
			return false, err
		}
		homes[one.Name] = home
		parts[home].Schedules = append(parts[home].Schedules, one)
	}
	answers, silent, err := s.gather(ctx, &shard.Call{Op: shard.OpSchedules})
	if err != nil {
		return false, err
	}
	if len(silent) > 0 {
		return false, fmt.Errorf("schedules: %w, and may have some of them; none was changed", Away(silent))
	}
	added := addPaused(parts, answers)
	if _, err := s.setAt(ctx, added); err != nil {
		return false, err
	}
	if kept, err := s.evict(ctx, answers, added, homes); kept || err != nil {
		return false, err
	}
	_, err = s.setAt(ctx, parts)
	return true, err
}

// addPaused sets the pauses that shards have stored in the schedules of parts, which has those of each shard. It
// returns calls that add paused schedules to shards that do not have them.
func addPaused(parts map[int]*shard.Call, answers []*shard.Answer) map[int]*shard.Call {
	paused := map[string]*info.PausedSchedule{}
	for _, a := range answers {
		for _, one := range a.Schedules {
			if one.Paused != nil {
				paused[one.Name] = one.Paused
			}
		}
	}
	added := map[int]*shard.Call{}
	for home, part := range parts {
		for i := range part.Schedules {
			one := &part.Schedules[i]
			one.Paused = paused[one.Name]
			if holders, _ := holdersOf(answers, one.Name); one.Paused != nil && !slices.Contains(holders, home) {
				if added[home] == nil {
					added[home] = &shard.Call{Schedules: slices.Clone(answers[home].Schedules)}
				}
				added[home].Schedules = append(added[home].Schedules, *one)
			}
		}
	}
	return added
}

// endMove ends the move of a schedule that several shards have: it is removed from all but the one
// that it belongs to, or else the last one.
func (s scheduleSpreader) endMove(ctx context.Context, answers []*shard.Answer, holders []int, one *info.Schedule) ([]int, error) {
	home, err := s.home(ctx, one)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(holders, home) {
		home = holders[len(holders)-1]
	}
	_, err = s.evict(ctx, answers, nil, map[string]int{one.Name: home})
	return []int{home}, err
}

// home returns the shard that a schedule belongs to. The runs that it starts are in the
// same shard.
func (s scheduleSpreader) home(ctx context.Context, one *info.Schedule) (int, error) {
	var gathered bool
	var err error
	if w := s.process.Handlers.Workflow(one.Workflow); w != nil {
		gathered, err = s.cluster.placement.isGathered(ctx, w)
	} else { // other processes may have decided where its runs are
		var place store.Place
		place, err = store.PlaceOf(ctx, s.cluster.log, one.Workflow, store.Undecided)
		gathered = place == store.Gathered
	}
	if gathered {
		return machine.WorkflowSlot(one.Workflow) % s.Count(), err
	}
	return machine.KeySlot(one.Name) % s.Count(), err
}

// evict removes the schedules from the shards that they do not belong to any more. answers has what
// the shards had, and added what was added to some of them since. kept says that a schedule was
// paused since then, and stays.
func (s scheduleSpreader) evict(ctx context.Context, answers []*shard.Answer, added map[int]*shard.Call, homes map[string]int) (kept bool, err error) {
	moved := map[int]*shard.Call{}
	for n, a := range answers {
		has := a.Schedules
		if added[n] != nil {
			has = added[n].Schedules
		}
		var c shard.Call
		for _, one := range has {
			switch home, wanted := homes[one.Name]; {
			case !wanted || home == n:
				c.Schedules = append(c.Schedules, one)
			case one.Paused == nil:
				c.Unpaused = append(c.Unpaused, one.Name)
			}
		}
		if len(c.Schedules) < len(has) {
			moved[n] = &c
		}
	}
	return s.setAt(ctx, moved)
}

// setAt replaces all schedules of the given shards. kept says that a shard has kept a schedule of
// call.Unpaused.
func (s scheduleSpreader) setAt(ctx context.Context, parts map[int]*shard.Call) (kept bool, err error) {
	answers, errs := make([]shard.Answer, s.Count()), make([]error, s.Count())
	var each sync.WaitGroup
	for n, c := range parts {
		c.Op = shard.OpSchedule
		each.Go(func() { answers[n], errs[n] = s.At(ctx, n, c) })
	}
	each.Wait()
	return slices.ContainsFunc(answers, func(a shard.Answer) bool { return len(a.Schedules) > 0 }), errors.Join(errs...)
}

// holdersOf returns the shards that have a schedule of this name, and the schedule.
func holdersOf(answers []*shard.Answer, name string) (holders []int, last *info.Schedule) {
	for shard, a := range answers {
		if i := slices.IndexFunc(a.Schedules, func(one info.Schedule) bool { return one.Name == name }); i >= 0 {
			holders, last = append(holders, shard), &a.Schedules[i]
		}
	}
	return holders, last
}
