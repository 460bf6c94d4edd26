package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// scheduler starts the runs of a shard's schedules. Only the owner's goroutine calls it, except
// for set and list.
type scheduler struct {
	sh *shard
	o  *owner

	decoded     map[*machine.Schedule]Schedule // cache of decode
	unstartable map[string]string              // for schedules that are due, but can't start a run yet: why
}

func (s *scheduler) init(sh *shard) {
	s.sh, s.o = sh, &sh.owner
	s.decoded = map[*machine.Schedule]Schedule{}
	s.unstartable = map[string]string{}
}

// set replaces all schedules of the shard. unpaused has the names of schedules that move to another
// shard and are not paused, as far as the caller knows: those that are paused stay, and set returns
// them. Any goroutine may call it.
func (s *scheduler) set(ctx context.Context, list []Schedule, unpaused []string) ([]Schedule, error) {
	var kept []Schedule
	wanted := map[string]Schedule{}
	for _, one := range list {
		wanted[one.Name] = one
	}
	err := s.sh.do(ctx, func(t *turn) error {
		for name, stored := range s.o.m.Schedules() {
			if _, keep := wanted[name]; keep {
				continue
			}
			if one := s.decode(stored); one.Paused != nil && slices.Contains(unpaused, name) {
				kept = append(kept, one)
				continue
			}
			t.must(&machine.Record{Kind: machine.Cron, At: t.now, Text: name})
			delete(s.unstartable, name)
		}
		for _, one := range wanted {
			one.Refused = nil
			stored, ok := s.o.m.Schedules()[one.Name]
			if ok {
				one.Paused = s.decode(stored).Paused
			}
			if !ok || !s.decode(stored).sameAs(one) {
				s.plan(&one, time.Unix(0, t.now))
				delete(s.unstartable, one.Name)
				continue
			}
			one.Next = time.Unix(0, stored.Due)
			if s.decode(stored).Refused != nil && s.canStart(&one) {
				t.must(&machine.Record{Kind: machine.Cron, At: t.now, Text: one.Name, Due: stored.Due, Data: one.data()})
			}
		}
		s.warn()
		return nil
	})
	if err != nil {
		return nil, err // the owner may still append to kept
	}
	return kept, nil
}

// list returns the schedules as they are shown. Any goroutine may call it.
func (s *scheduler) list(ctx context.Context) ([]Schedule, error) {
	return ask(ctx, s.sh, func(*turn) (list []Schedule, err error) {
		for _, stored := range s.o.m.Schedules() {
			list = append(list, s.describe(stored))
		}
		return list, nil
	})
}

// canStart reports whether the next start of the schedule would be accepted now.
func (s *scheduler) canStart(one *Schedule) bool {
	w := s.sh.handlers.workflow(one.Workflow)
	if w == nil {
		return false
	}
	_, err := s.input(one, w)
	return err == nil
}

// pause pauses or resumes a schedule. Any goroutine may call it.
func (s *scheduler) pause(ctx context.Context, asked *call) error {
	return s.sh.do(ctx, func(t *turn) error {
		stored, ok := s.o.m.Schedules()[asked.Text]
		if !ok {
			return fmt.Errorf("schedule %q: %w", asked.Text, ErrNoSchedule)
		}
		one, pause, at := s.decode(stored), asked.Op == opPauseSchedule, time.Unix(0, t.now)
		if pause == (one.Paused != nil) {
			return nil
		}
		kind := retry.Resumed
		if one.Paused = nil; pause {
			kind, one.Paused = retry.Paused, &PausedSchedule{At: at, By: asked.By}
		}
		delete(s.unstartable, one.Name)
		s.plan(&one, at)
		s.warn()
		s.o.events.add(retry.Event{Kind: kind, Time: at, Name: one.Workflow, Note: strings.TrimSuffix("schedule "+one.Name+", by "+asked.By, ", by ")})
		return nil
	})
}

// plan records the schedule with its next start after the given time. A schedule that is paused
// is never due, also for an older release, which does not know of pauses.
func (s *scheduler) plan(one *Schedule, after time.Time) {
	next, err := ParseCron(one.Cron, after)
	due := next.UnixNano()
	if err != nil || one.Paused != nil {
		due = math.MaxInt64
	}
	t := &s.o.turn
	t.must(&machine.Record{Kind: machine.Cron, At: t.now, Text: one.Name, Due: due, Data: one.data()})
}

// reschedule computes the next starts again after the clock was set back. It moves starts that
// were planned too late while the clock was ahead.
func (s *scheduler) reschedule() {
	now := time.Unix(0, s.o.turn.now)
	for _, stored := range s.o.m.Schedules() {
		one := s.decode(stored)
		if next, err := ParseCron(one.Cron, now); err == nil && one.Paused == nil && next.Before(one.Next) {
			s.plan(&one, now)
		}
	}
}

// nextDue returns when the first schedule is due; math.MaxInt64 if none is.
func (s *scheduler) nextDue() int64 {
	due := int64(math.MaxInt64)
	for _, stored := range s.o.m.Schedules() {
		w := s.sh.handlers.workflow(s.decode(stored).Workflow)
		switch {
		case w != nil && s.sh.checkMembers(w.format) != nil: // a member that leaves does not wake the shard
			due = min(due, max(stored.Due, s.o.turn.now+int64(memberCheck)))
		case w != nil:
			due = min(due, stored.Due)
		case s.unstartable[stored.Name] == "": // its workflow is not registered: that is reported once when it is due
			due = min(due, max(stored.Due, s.o.registeredBy()))
		}
	}
	return due
}

// memberCheck is the time between two checks whether all members can read the runs of a schedule
// that is due.
const memberCheck = time.Second

// decode decodes a stored schedule.
func (s *scheduler) decode(stored *machine.Schedule) (out Schedule) {
	out, ok := s.decoded[stored]
	if !ok {
		_ = json.Unmarshal(stored.Data, &out) // can't fail: Schedule.data wrote it
		out.Next = time.Unix(0, stored.Due)
		if len(s.decoded) > 2*len(s.o.m.Schedules()) {
			clear(s.decoded)
		}
		s.decoded[stored] = out
	}
	return out
}

// fire starts the runs of the schedules that are due. The key of a run has the time of the
// start in it, so that no start is made twice.
func (s *scheduler) fire() {
	now := s.o.turn.now
	changed := false
	for _, stored := range s.o.m.Schedules() {
		if stored.Due > now {
			continue
		}
		one := s.decode(stored)
		w := s.sh.handlers.workflow(one.Workflow)
		if w == nil {
			changed = s.o.turn.now >= s.o.registeredBy() && s.reportUnstartable(&one, unknownWorkflow(one.Workflow)) || changed
			continue
		}
		if err := s.sh.checkMembers(w.format); err != nil {
			changed = s.reportUnstartable(&one, err.Error()) || changed
			continue
		}
		changed = true
		delete(s.unstartable, one.Name)
		at := time.Unix(0, s.o.turn.now)
		if late := at.Sub(one.Next); !one.Skip || late < time.Minute {
			if err := s.start(&one, w); err != nil {
				one.noteRefused(s.sh.errorText(err.Error()))
				s.reportRefused(&one, at)
			} else {
				one.Refused = nil
			}
		}
		s.plan(&one, at)
	}
	if changed {
		s.warn()
	}
}

// start starts the run of a schedule that is due.
func (s *scheduler) start(one *Schedule, w *Workflow) error {
	input, err := s.input(one, w)
	if err != nil {
		return err
	}
	_, _, err = s.o.turn.start(&machine.Start{
		Hash: w.def.Hash(), Input: input, Source: "schedule " + one.Name,
		Key: "schedule/" + one.Name + "/" + one.Next.UTC().Format(time.RFC3339),
	}, w.def)
	return err
}

// input returns the input of the next run of the schedule.
func (s *scheduler) input(one *Schedule, w *Workflow) (json.RawMessage, error) {
	input, err := w.prepared(one.Input, one.Next)
	if err != nil {
		return nil, err
	}
	if most := s.sh.cfg.MaxPayload; len(input) > most {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(input), most)
	}
	return input, nil
}

// reportUnstartable reports, once, a schedule that is due and that can't start a run yet: its
// workflow is not registered in this process, or a member of the cluster can't read its runs. The
// start is made when that has changed. It returns true if it has reported the schedule.
func (s *scheduler) reportUnstartable(one *Schedule, why string) bool {
	if s.unstartable[one.Name] == why {
		return false
	}
	s.unstartable[one.Name] = why
	one.noteRefused(why)
	s.reportRefused(one, one.Next) // not the current time: a report after a restart must have the same time
	return true
}

func unknownWorkflow(name string) string {
	return fmt.Sprintf("workflow %q: %v in the process that has this schedule: register it, and the start is made", name, ErrUnknownWorkflow)
}

// reportRefused logs a refused start and publishes an event.
func (s *scheduler) reportRefused(one *Schedule, at time.Time) {
	s.sh.cfg.Logger.Error("a scheduled start was refused", "schedule", one.Name, "workflow", one.Workflow, "due", one.Next, "error", one.Refused.Error)
	s.o.events.add(retry.Event{
		Kind: retry.StartRefused, Time: at, Name: one.Workflow, Note: "schedule " + one.Name, Err: errors.New(one.Refused.Error),
	})
}

// describe returns the schedule as it is shown. If it can't start a run yet, describe adds a
// refused start; that is not stored, because it depends on the process.
func (s *scheduler) describe(stored *machine.Schedule) Schedule {
	one := s.decode(stored)
	if why := s.unstartable[one.Name]; why != "" {
		one.noteRefused(why)
	}
	if one.Paused != nil {
		one.Next = time.Time{}
	}
	return one
}

// warn sets the warnings of the shard: one for each schedule whose last start was refused.
func (s *scheduler) warn() {
	var list []Trouble
	for _, stored := range s.o.m.Schedules() {
		if one := s.describe(stored); one.Refused != nil {
			list = append(list, Trouble{
				What:  fmt.Sprintf("schedule %s: a start of workflow %s was refused", one.Name, one.Workflow),
				Since: one.Refused.Since, Error: one.Refused.Error,
			})
		}
	}
	slices.SortFunc(list, func(a, b Trouble) int { return strings.Compare(a.What, b.What) })
	s.sh.health.warn(list)
}
