package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
)

// Schedule starts runs of a workflow at the times of a cron expression.
type Schedule struct {
	Name     string          `json:"name"`
	Workflow string          `json:"workflow"`
	Cron     string          `json:"cron"` // five fields, or @daily and the like, optionally after TZ=Europe/Berlin
	Input    json.RawMessage `json:"input,omitempty"`
	Skip     bool            `json:"skip,omitempty"` // skip starts that were missed by a minute or more; otherwise all missed starts are made up for by one
	Next     time.Time       `json:"next,omitzero"`  // time of the next start; zero if it is paused; SetSchedules ignores it

	// Refused describes the last start if it was refused; nil if it was not.
	// SetSchedules ignores it.
	Refused *RefusedStart `json:"refused,omitempty"`

	// Paused says who has paused the schedule, and when; nil if it is not paused.
	// SetSchedules ignores it: a schedule that is paused stays paused, even if it has changed.
	Paused *PausedSchedule `json:"paused,omitempty"`
}

// PausedSchedule describes the pause of a schedule: see [Engine.PauseSchedule].
type PausedSchedule struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"`
}

// RefusedStart describes a scheduled start that was due and refused: its input could not be
// prepared, or its workflow is not registered. It stays with the schedule until a start
// succeeds, or until [Engine.SetSchedules] finds that the next start can succeed.
type RefusedStart struct {
	At    time.Time `json:"at"`    // when the last start was due
	Since time.Time `json:"since"` // when the first of the starts that were refused in a row was due
	Count int       `json:"count"` // number of starts that were refused in a row
	Error string    `json:"error"`
}

// ParseCron returns the first time after the given one at which a cron expression is due.
// It fails if the expression is not valid or is never due.
func ParseCron(text string, after time.Time) (next time.Time, err error) {
	defer func() {
		if p := recover(); p != nil { // the parser panics if the text has only a time zone
			err = fmt.Errorf("cron %q: %v", text, p)
		}
	}()
	s, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("cron %q: %w", text, err)
	}
	next = s.Next(after)
	if next.IsZero() {
		return next, fmt.Errorf("cron %q: is never due", text)
	}
	return next, nil
}

// ErrUnknownWorkflow says that no workflow of the name is registered.
var ErrUnknownWorkflow = errors.New("no workflow of this name is registered")

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

// ErrNoSchedule says that there is no schedule of the name.
var ErrNoSchedule = errors.New("there is no schedule of this name")

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

// holdersOf returns the shards that have a schedule of this name, and the schedule.
func holdersOf(answers []*answer, name string) (holders []int, last *Schedule) {
	for shard, a := range answers {
		if a == nil {
			continue
		}
		if i := slices.IndexFunc(a.Schedules, func(one Schedule) bool { return one.Name == name }); i >= 0 {
			holders, last = append(holders, shard), &a.Schedules[i]
		}
	}
	return holders, last
}

// sameAs reports whether two schedules are equal, apart from Next, Refused and Paused.
func (s Schedule) sameAs(other Schedule) bool {
	s.Refused, other.Refused = nil, nil
	s.Paused, other.Paused = nil, nil
	return string(s.data()) == string(other.data())
}

// data returns the schedule as it is stored: JSON without Next, which the record has.
func (s Schedule) data() []byte {
	s.Next = time.Time{}
	text, _ := json.Marshal(s) // can't fail: strings and valid JSON
	return text
}

// noteRefused notes that the start that is due was refused.
func (s *Schedule) noteRefused(why string) {
	r := RefusedStart{At: s.Next, Since: s.Next, Count: 1, Error: why}
	if s.Refused != nil {
		r.Since, r.Count = s.Refused.Since, s.Refused.Count+1
	}
	s.Refused = &r
}

// scheduleSpreader assigns schedules to shards.
type scheduleSpreader struct{ *router }

// check returns the errors of all schedules.
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
			errs = append(errs, fmt.Errorf("schedule %q: needs a name that no other schedule has", one.Name))
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

// spread gives each shard its schedules. A schedule that belongs to another shard now is
// removed from the old shard before it is added to the new one. It may miss a start in
// between, but never starts a run twice. One that is paused is added before it is removed: it
// starts nothing, and the pause is not lost if this process dies in between. If a schedule that is to
// be removed was paused meanwhile, it stays, and spread begins again.
func (s scheduleSpreader) spread(ctx context.Context, list []Schedule) error {
	if s.alone != nil {
		_, err := s.setAt(ctx, map[int]*call{0: {Schedules: list}})
		return err
	}
	for {
		if done, err := s.trySpread(ctx, slices.Clone(list)); done || err != nil {
			return err
		}
	}
}

// trySpread is spread. done is false if a schedule that is to be removed was paused meanwhile.
func (s scheduleSpreader) trySpread(ctx context.Context, list []Schedule) (done bool, err error) {
	homes := map[string]int{}
	parts := map[int]*call{}
	for n := range s.count() {
		parts[n] = new(call)
	}
	for _, one := range list {
		home, err := s.home(ctx, &one)
		if err != nil {
			return false, err
		}
		homes[one.Name] = home
		parts[home].Schedules = append(parts[home].Schedules, one)
	}
	answers, silent, err := s.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return false, err
	}
	if len(silent) > 0 {
		return false, fmt.Errorf("schedules: %w, and may have some of them; none was changed", away(silent))
	}
	paused := map[string]*PausedSchedule{}
	for _, a := range answers {
		for _, one := range a.Schedules {
			if one.Paused != nil {
				paused[one.Name] = one.Paused
			}
		}
	}
	added := map[int]*call{}
	for home, part := range parts {
		for i := range part.Schedules {
			one := &part.Schedules[i]
			one.Paused = paused[one.Name]
			if holders, _ := holdersOf(answers, one.Name); one.Paused != nil && !slices.Contains(holders, home) {
				if added[home] == nil {
					added[home] = &call{Schedules: slices.Clone(answers[home].Schedules)}
				}
				added[home].Schedules = append(added[home].Schedules, *one)
			}
		}
	}
	if _, err := s.setAt(ctx, added); err != nil {
		return false, err
	}
	if kept, err := s.evict(ctx, answers, added, homes); kept || err != nil {
		return false, err
	}
	_, err = s.setAt(ctx, parts)
	return true, err
}

// endMove ends the move of a schedule that several shards have: it is removed from all but the one
// that it belongs to, or else the last one.
func (s scheduleSpreader) endMove(ctx context.Context, answers []*answer, holders []int, one *Schedule) ([]int, error) {
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
func (s scheduleSpreader) home(ctx context.Context, one *Schedule) (int, error) {
	var gathered bool
	var err error
	if w := s.process.handlers.workflow(one.Workflow); w != nil {
		gathered, err = s.cluster.placement.isGathered(ctx, w)
	} else { // other processes may have decided where its runs are
		var place store.Place
		place, err = store.PlaceOf(ctx, s.cluster.log, one.Workflow, store.Undecided)
		gathered = place == store.Gathered
	}
	if gathered {
		return machine.WorkflowSlot(one.Workflow) % s.count(), err
	}
	return machine.KeySlot(one.Name) % s.count(), err
}

// evict removes the schedules from the shards that they do not belong to any more. answers has what
// the shards had, and added what was added to some of them since. kept says that a schedule was
// paused since then, and stays.
func (s scheduleSpreader) evict(ctx context.Context, answers []*answer, added map[int]*call, homes map[string]int) (kept bool, err error) {
	moved := map[int]*call{}
	for n, a := range answers {
		if a == nil {
			continue
		}
		has := a.Schedules
		if added[n] != nil {
			has = added[n].Schedules
		}
		var c call
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
func (s scheduleSpreader) setAt(ctx context.Context, parts map[int]*call) (kept bool, err error) {
	answers, errs := make([]answer, s.count()), make([]error, s.count())
	var each sync.WaitGroup
	for shard, c := range parts {
		c.Op = opSchedule
		each.Go(func() { answers[shard], errs[shard] = s.at(ctx, shard, c) })
	}
	each.Wait()
	return slices.ContainsFunc(answers, func(a answer) bool { return len(a.Schedules) > 0 }), errors.Join(errs...)
}
