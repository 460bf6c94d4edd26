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

// Schedule starts a workflow by the calendar.
type Schedule struct {
	Name     string          `json:"name"`
	Workflow string          `json:"workflow"`
	Cron     string          `json:"cron"` // five fields, or @daily and its like; TZ=Europe/Berlin may stand before
	Input    json.RawMessage `json:"input,omitempty"`
	Skip     bool            `json:"skip,omitempty"` // starts that were missed are not made up for; otherwise once
	Next     time.Time       `json:"next"`           // the next start

	// Refused is set while the last start was refused. SetSchedules ignores it.
	Refused *RefusedStart `json:"refused,omitempty"`
}

// RefusedStart is a start of a schedule that was due and refused: its input could not be
// made, or its workflow is not registered. It is stored with the schedule, until a start
// succeeds or [Engine.SetSchedules] finds that the next one can.
type RefusedStart struct {
	At    time.Time `json:"at"`    // when the last start was due
	Since time.Time `json:"since"` // when the first of those was due that were refused in a row
	Count int       `json:"count"` // how many those are
	Error string    `json:"error"`
}

// ParseCron returns when the schedule is due first after the time, or what is wrong with
// its text.
func ParseCron(text string, after time.Time) (next time.Time, err error) {
	defer func() {
		if p := recover(); p != nil { // of the parser, for a time zone and nothing else
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

// SetSchedules makes these all the schedules there are. One that is known goes on
// with its next start, unless it has changed. If a workflow is not registered, the error
// is [ErrUnknownWorkflow] and nothing changes. In a cluster it must be registered here,
// or have been started or scheduled before by a process that knows it.
func (e *Engine) SetSchedules(ctx context.Context, list []Schedule) error {
	s := scheduleSpreader{&e.router}
	if err := s.check(ctx, list); err != nil {
		return err
	}
	return s.spread(ctx, list)
}

// Schedules returns the schedules.
func (e *Engine) Schedules(ctx context.Context) (list []Schedule, err error) {
	answers, silent, err := e.gather(ctx, &call{Op: opSchedules})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a != nil {
			list = append(list, a.Schedules...)
		}
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("schedules: %w", away(silent))
	}
	return list, nil
}

// sameAs reports whether two schedules start the same at the same times.
func (s Schedule) sameAs(other Schedule) bool {
	s.Refused, other.Refused = nil, nil
	return string(s.data()) == string(other.data())
}

// data returns what is stored of the schedule.
func (s Schedule) data() []byte {
	s.Next = time.Time{}
	text, _ := json.Marshal(s) // of strings and JSON that was checked
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

// scheduleSpreader gives each shard the schedules that belong to it.
type scheduleSpreader struct{ *router }

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
