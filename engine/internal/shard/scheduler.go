package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/internal/cron"
	"github.com/tideover/tideover/retry"
)

// scheduler starts the runs of a shard's schedules. It is a part of the owner.
type scheduler struct {
	process *Process
	state   *state
	health  *health
	events  *eventBatch

	decoded     map[*machine.Schedule]info.Schedule // cache of decode
	unstartable map[string]string                   // for schedules that are due, but can't start a run yet: why
}

// set replaces all schedules of the shard. unpaused has the names of schedules that move to another
// shard and are not paused, as far as the caller knows: those that are paused stay, and set returns
// them.
func (s *scheduler) set(t Recorder, list []info.Schedule, unpaused []string) (kept []info.Schedule) {
	wanted := map[string]info.Schedule{}
	for _, one := range list {
		wanted[one.Name] = one
	}
	for name, stored := range s.state.m.Schedules() {
		if _, keep := wanted[name]; keep {
			continue
		}
		if one := s.decode(stored); one.Paused != nil && slices.Contains(unpaused, name) {
			kept = append(kept, one)
			continue
		}
		t.Record(machine.DropSchedule(name, t.Now()))
		delete(s.unstartable, name)
	}
	for _, one := range wanted {
		s.setOne(t, &one)
	}
	s.warn()
	return kept
}

// setOne records a schedule, if it has changed.
func (s *scheduler) setOne(t Recorder, one *info.Schedule) {
	one.Refused = nil
	stored, ok := s.state.m.Schedules()[one.Name]
	if ok {
		one.Paused = s.decode(stored).Paused
	}
	if !ok || !sameSchedule(s.decode(stored), *one) {
		s.plan(t, one, time.Unix(0, t.Now()))
		delete(s.unstartable, one.Name)
		return
	}
	one.Next = time.Unix(0, stored.Due)
	w := s.process.Handlers.Workflow(one.Workflow)
	if s.decode(stored).Refused == nil || w == nil {
		return
	}
	if _, err := s.input(one, w); err == nil { // the next start would be accepted
		t.Record(machine.SetSchedule(machine.Schedule{Name: one.Name, Due: stored.Due, Data: storedSchedule(*one)}, t.Now()))
	}
}

// list returns the schedules as they are shown.
func (s *scheduler) list() (list []info.Schedule) {
	for _, stored := range s.state.m.Schedules() {
		list = append(list, s.describe(stored))
	}
	return list
}

// pause pauses or resumes a schedule.
func (s *scheduler) pause(t Recorder, asked *Call) error {
	stored, ok := s.state.m.Schedules()[asked.Text]
	if !ok {
		return fmt.Errorf("schedule %q: %w", asked.Text, ErrNoSchedule)
	}
	one, pause, at := s.decode(stored), asked.Op == OpPauseSchedule, time.Unix(0, t.Now())
	if pause == (one.Paused != nil) {
		return nil
	}
	if one.Paused = nil; pause {
		one.Paused = &info.PausedSchedule{At: at, By: asked.By}
	}
	delete(s.unstartable, one.Name)
	s.plan(t, &one, at)
	s.warn()
	s.events.addPause(pause, at, one.Workflow, "schedule "+one.Name, asked.By)
	return nil
}

// plan records the schedule with its next start after the given time. A schedule that is paused
// is never due, also for an older release, which does not know of pauses.
func (s *scheduler) plan(t Recorder, one *info.Schedule, after time.Time) {
	next, err := ParseCron(one.Cron, after)
	due := next.UnixNano()
	if err != nil || one.Paused != nil {
		due = math.MaxInt64
	}
	t.Record(machine.SetSchedule(machine.Schedule{Name: one.Name, Due: due, Data: storedSchedule(*one)}, t.Now()))
}

// reschedule computes the next starts again after the clock was set back. It moves starts that
// were planned too late while the clock was ahead.
func (s *scheduler) reschedule(t Recorder) {
	now := time.Unix(0, t.Now())
	for _, stored := range s.state.m.Schedules() {
		one := s.decode(stored)
		if next, err := ParseCron(one.Cron, now); err == nil && one.Paused == nil && next.Before(one.Next) {
			s.plan(t, &one, now)
		}
	}
}

// nextDue returns when the first schedule is due, at the time now; math.MaxInt64 if none is.
func (s *scheduler) nextDue(now int64) int64 {
	due := int64(math.MaxInt64)
	for _, stored := range s.state.m.Schedules() {
		w := s.process.Handlers.Workflow(s.decode(stored).Workflow)
		switch {
		case w != nil && s.process.Peers.CheckFormat(w.Format()) != nil: // a member that leaves does not wake the shard
			due = min(due, max(stored.Due, now+int64(memberCheck)))
		case w != nil:
			due = min(due, stored.Due)
		case s.unstartable[stored.Name] == "": // its workflow is not registered: that is reported once when it is due
			due = min(due, max(stored.Due, s.state.registeredBy()))
		}
	}
	return due
}

// memberCheck is the time between two checks whether all members can read the runs of a schedule
// that is due.
const memberCheck = time.Second

// decode decodes a stored schedule.
func (s *scheduler) decode(stored *machine.Schedule) (out info.Schedule) {
	out, ok := s.decoded[stored]
	if !ok {
		_ = json.Unmarshal(stored.Data, &out) // can't fail: Schedule.data wrote it
		out.Next = time.Unix(0, stored.Due)
		if len(s.decoded) > 2*len(s.state.m.Schedules()) {
			clear(s.decoded)
		}
		s.decoded[stored] = out
	}
	return out
}

// fire starts the runs of the schedules that are due. The key of a run has the time of the
// start in it, so that no start is made twice.
func (s *scheduler) fire(t Recorder) {
	now := t.Now()
	changed := false
	for _, stored := range s.state.m.Schedules() {
		if stored.Due > now {
			continue
		}
		one := s.decode(stored)
		w := s.process.Handlers.Workflow(one.Workflow)
		if w == nil {
			changed = t.Now() >= s.state.registeredBy() && s.reportUnstartable(&one, fmt.Sprintf(unregistered, one.Workflow, ErrUnknownWorkflow)) || changed
			continue
		}
		if err := s.process.Peers.CheckFormat(w.Format()); err != nil {
			changed = s.reportUnstartable(&one, err.Error()) || changed
			continue
		}
		changed = true
		delete(s.unstartable, one.Name)
		at := time.Unix(0, t.Now())
		if late := at.Sub(one.Next); !one.Skip || late < time.Minute {
			if err := s.start(t, &one, w); err != nil {
				noteRefused(&one, s.process.Settings.errorText(err.Error()))
				s.reportRefused(&one, at)
			} else {
				one.Refused = nil
			}
		}
		s.plan(t, &one, at)
	}
	if changed {
		s.warn()
	}
}

// start starts the run of a schedule that is due.
func (s *scheduler) start(t Recorder, one *info.Schedule, w *workflow.Workflow) error {
	input, err := s.input(one, w)
	if err != nil {
		return err
	}
	_, _, err = t.StartRun(&machine.Start{
		Hash: w.Def.Hash(), Input: input, Source: "schedule " + one.Name,
		Key: "schedule/" + one.Name + "/" + one.Next.UTC().Format(time.RFC3339),
	}, w.Def)
	return err
}

// input returns the input of the next run of the schedule.
func (s *scheduler) input(one *info.Schedule, w *workflow.Workflow) (json.RawMessage, error) {
	input, err := w.Prepare(one.Input, one.Next)
	if err != nil {
		return nil, err
	}
	if most := s.process.Settings.MaxPayload; len(input) > most {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", workflow.ErrTooLarge, len(input), most)
	}
	return input, nil
}

// reportUnstartable reports, once, a schedule that is due and that can't start a run yet: its
// workflow is not registered in this process, or a member of the cluster can't read its runs. The
// start is made when that has changed. It returns true if it has reported the schedule.
func (s *scheduler) reportUnstartable(one *info.Schedule, why string) bool {
	if s.unstartable[one.Name] == why {
		return false
	}
	s.unstartable[one.Name] = why
	noteRefused(one, why)
	s.reportRefused(one, one.Next) // not the current time: a report after a restart must have the same time
	return true
}

// unregistered is the format of why a schedule of a workflow that is not registered can't start a run.
const unregistered = "workflow %q: %v in the process that has this schedule: register it, and the start is made"

// reportRefused logs a refused start and publishes an event.
func (s *scheduler) reportRefused(one *info.Schedule, at time.Time) {
	s.process.Settings.Logger.Error("a scheduled start was refused", "schedule", one.Name, "workflow", one.Workflow, "due", one.Next, "error", one.Refused.Error)
	s.events.add(retry.Event{
		Kind: retry.StartRefused, Time: at, Name: one.Workflow, Note: "schedule " + one.Name, Err: errors.New(one.Refused.Error),
	})
}

// describe returns the schedule as it is shown. If it can't start a run yet, describe adds a
// refused start; that is not stored, because it depends on the process.
func (s *scheduler) describe(stored *machine.Schedule) info.Schedule {
	one := s.decode(stored)
	if why := s.unstartable[one.Name]; why != "" {
		noteRefused(&one, why)
	}
	if one.Paused != nil {
		one.Next = time.Time{}
	}
	return one
}

// warn sets the warnings of the shard: one for each schedule whose last start was refused.
func (s *scheduler) warn() {
	var list []info.Trouble
	for _, stored := range s.state.m.Schedules() {
		if one := s.describe(stored); one.Refused != nil {
			list = append(list, info.Trouble{
				What:  fmt.Sprintf("schedule %s: a start of workflow %s was refused", one.Name, one.Workflow),
				Since: one.Refused.Since, Error: one.Refused.Error,
			})
		}
	}
	slices.SortFunc(list, func(a, b info.Trouble) int { return strings.Compare(a.What, b.What) })
	s.health.replace(&s.health.warnings, list)
}

// ParseCron returns the first time after the given one at which a cron expression is due.
// It fails if the expression is not valid or is never due.
func ParseCron(text string, after time.Time) (time.Time, error) {
	s, err := cron.Parse(text, false)
	if err != nil {
		return time.Time{}, fmt.Errorf("cron %q: %w", text, err)
	}
	return s.Next(after), nil
}

// sameSchedule reports whether two schedules are equal, apart from Next, Refused and Paused.
func sameSchedule(s, other info.Schedule) bool {
	s.Refused, other.Refused = nil, nil
	s.Paused, other.Paused = nil, nil
	return string(storedSchedule(s)) == string(storedSchedule(other))
}

// storedSchedule returns the schedule as it is stored: JSON without Next, which the record has.
func storedSchedule(s info.Schedule) []byte {
	s.Next = time.Time{}
	text, _ := json.Marshal(s) // can't fail: strings and valid JSON
	return text
}

// noteRefused notes that the start that is due was refused.
func noteRefused(s *info.Schedule, why string) {
	r := info.RefusedStart{At: s.Next, Since: s.Next, Count: 1, Error: why}
	if s.Refused != nil {
		r.Since, r.Count = s.Refused.Since, s.Refused.Count+1
	}
	s.Refused = &r
}
