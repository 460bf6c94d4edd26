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

	"github.com/robfig/cron/v3"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/retry"
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

// ParseCron says whether the text is a schedule, and when it is due first after
// the time.
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
	if err := e.checkSchedules(ctx, list); err != nil {
		return err
	}
	return e.spread(ctx, list)
}

// checkSchedules says what is wrong with the schedules.
func (e *Engine) checkSchedules(ctx context.Context, list []Schedule) error {
	names := map[string]bool{}
	var errs []error
	for _, s := range list {
		if _, err := ParseCron(s.Cron, time.Now()); err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", s.Name, err))
		}
		switch {
		case len(s.Input) > e.cfg.MaxPayload:
			errs = append(errs, fmt.Errorf("schedule %q: input: %w: %d bytes, at most %d", s.Name, ErrTooLarge, len(s.Input), e.cfg.MaxPayload))
		case len(s.Input) > 0 && !json.Valid(s.Input):
			errs = append(errs, fmt.Errorf("schedule %q: input: not JSON", s.Name))
		}
		if names[s.Name] || s.Name == "" {
			errs = append(errs, fmt.Errorf("schedule %q: needs a name of its own", s.Name))
		}
		names[s.Name] = true
		if known, err := e.knowsWorkflow(ctx, s.Workflow); err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", s.Name, err))
		} else if !known {
			errs = append(errs, fmt.Errorf("schedule %q: workflow %q: %w: register it first", s.Name, s.Workflow, ErrUnknownWorkflow))
		}
	}
	return errors.Join(errs...)
}

// knowsWorkflow reports whether the workflow is registered here, or has been started or
// scheduled in the cluster.
func (e *Engine) knowsWorkflow(ctx context.Context, name string) (bool, error) {
	if e.handlers.workflow(name) != nil {
		return true, nil
	}
	if e.cluster == nil || name == "" {
		return false, nil
	}
	place, err := store.PlaceOf(ctx, e.cluster.log, name, store.Undecided)
	return place != store.Undecided, err
}

// setSchedules makes these all the schedules of the shard.
func (sh *shard) setSchedules(ctx context.Context, list []Schedule) error {
	wanted := map[string]Schedule{}
	for _, s := range list {
		wanted[s.Name] = s
	}
	return sh.do(ctx, func(t *turn) error {
		for name := range sh.m.Schedules() {
			if _, keep := wanted[name]; !keep {
				t.must(&machine.Record{Kind: machine.Cron, At: t.now, Text: name})
				delete(sh.unstartable, name)
			}
		}
		for _, s := range wanted {
			s.Refused = nil
			stored, ok := sh.m.Schedules()[s.Name]
			if !ok || !sh.scheduled(stored).sameAs(s) {
				t.schedule(&s, time.Unix(0, t.now))
				delete(sh.unstartable, s.Name)
				continue
			}
			s.Next = time.Unix(0, stored.Due)
			if sh.scheduled(stored).Refused != nil && sh.canStart(&s) {
				t.must(&machine.Record{Kind: machine.Cron, At: t.now, Text: s.Name, Due: stored.Due, Data: s.data()})
			}
		}
		sh.warnOfSchedules()
		return nil
	})
}

// sameAs reports whether two schedules start the same at the same times.
func (s Schedule) sameAs(other Schedule) bool {
	s.Refused, other.Refused = nil, nil
	return string(s.data()) == string(other.data())
}

// canStart reports whether the next start of the schedule would be accepted now.
func (sh *shard) canStart(s *Schedule) bool {
	w := sh.handlers.workflow(s.Workflow)
	if w == nil {
		return false
	}
	_, err := sh.scheduledInput(s, w)
	return err == nil
}

// data returns what is stored of the schedule.
func (s Schedule) data() []byte {
	s.Next = time.Time{}
	text, _ := json.Marshal(s) // of strings and JSON that was checked
	return text
}

// schedule records when the schedule is due after the time.
func (t *turn) schedule(s *Schedule, after time.Time) {
	next, err := ParseCron(s.Cron, after)
	due := next.UnixNano()
	if err != nil {
		due = math.MaxInt64 // it was due for the last time
	}
	t.must(&machine.Record{Kind: machine.Cron, At: t.now, Text: s.Name, Due: due, Data: s.data()})
}

// reschedule makes schedules due that the clock, when it was ahead, has put off.
func (t *turn) reschedule() {
	now := time.Unix(0, t.now)
	for _, stored := range t.sh.m.Schedules() {
		s := t.sh.scheduled(stored)
		if next, err := ParseCron(s.Cron, now); err == nil && next.Before(s.Next) {
			t.schedule(&s, now)
		}
	}
}

// schedulesDue returns when the first schedule is due.
func (sh *shard) schedulesDue() int64 {
	due := int64(math.MaxInt64)
	for _, s := range sh.m.Schedules() {
		switch {
		case sh.handlers.workflow(sh.scheduled(s).Workflow) != nil:
			due = min(due, s.Due)
		case !sh.unstartable[s.Name]: // that is reported when it is due
			due = min(due, max(s.Due, sh.openedAt.Add(settle).UnixNano()))
		}
	}
	return due
}

// scheduled reads a stored schedule.
func (sh *shard) scheduled(s *machine.Schedule) (out Schedule) {
	out, ok := sh.schedules[s]
	if !ok {
		_ = json.Unmarshal(s.Data, &out) // as data wrote it
		out.Next = time.Unix(0, s.Due)
		if len(sh.schedules) > 2*len(sh.m.Schedules()) {
			clear(sh.schedules)
		}
		sh.schedules[s] = out
	}
	return out
}

// fire starts what is due by the calendar. The key makes sure that no start is
// made twice.
func (sh *shard) fire() {
	t := &sh.turn
	changed := false
	for _, stored := range sh.m.Schedules() {
		if stored.Due > t.now {
			continue
		}
		s := sh.scheduled(stored)
		w := sh.handlers.workflow(s.Workflow)
		if w == nil {
			changed = sh.cannotStart(&s) || changed
			continue
		}
		changed = true
		delete(sh.unstartable, s.Name)
		now := time.Unix(0, t.now)
		if late := now.Sub(s.Next); !s.Skip || late < time.Minute {
			if err := t.startScheduled(&s, w); err != nil {
				s.refuse(sh.text(err.Error()))
				sh.reportRefused(&s, now)
			} else {
				s.Refused = nil
			}
		}
		t.schedule(&s, now)
	}
	if changed {
		sh.warnOfSchedules()
	}
}

// startScheduled starts a run for the time at which the schedule is due.
func (t *turn) startScheduled(s *Schedule, w *Workflow) error {
	input, err := t.sh.scheduledInput(s, w)
	if err != nil {
		return err
	}
	_, _, err = t.start(&machine.Start{
		Hash: w.def.Hash(), Input: input, Source: "schedule " + s.Name,
		Key: "schedule/" + s.Name + "/" + s.Next.UTC().Format(time.RFC3339),
	}, w.def)
	return err
}

// scheduledInput returns the input of the next run of the schedule.
func (sh *shard) scheduledInput(s *Schedule, w *Workflow) (json.RawMessage, error) {
	input, err := w.prepared(s.Input, s.Next)
	if err != nil {
		return nil, err
	}
	if len(input) > sh.cfg.MaxPayload {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(input), sh.cfg.MaxPayload)
	}
	return input, nil
}

// refuse notes that the start that is due was refused.
func (s *Schedule) refuse(why string) {
	r := RefusedStart{At: s.Next, Since: s.Next, Count: 1, Error: why}
	if s.Refused != nil {
		r.Since, r.Count = s.Refused.Since, s.Refused.Count+1
	}
	s.Refused = &r
}

// cannotStart reports a schedule that is due, if the process does not know its workflow.
// The start is made when the workflow is registered. After the engine was opened there
// is some time to do so. It returns true when it has reported something new.
func (sh *shard) cannotStart(s *Schedule) bool {
	if sh.unstartable[s.Name] || sh.turn.now < sh.openedAt.Add(settle).UnixNano() {
		return false
	}
	sh.unstartable[s.Name] = true
	s.refuse(unknownWorkflow(s.Workflow))
	sh.reportRefused(s, s.Next) // the same time after a restart: it is the same event
	return true
}

func unknownWorkflow(name string) string {
	return fmt.Sprintf("workflow %q: %v in the process that has this schedule: register it, and the start is made", name, ErrUnknownWorkflow)
}

// reportRefused logs a refused start, and makes it an event.
func (sh *shard) reportRefused(s *Schedule, at time.Time) {
	sh.cfg.Logger.Error("a scheduled start was refused", "schedule", s.Name, "workflow", s.Workflow, "due", s.Next, "error", s.Refused.Error)
	sh.news.add(retry.Event{
		Kind: retry.StartRefused, Time: at, Name: s.Workflow, Note: "schedule " + s.Name, Err: errors.New(s.Refused.Error),
	})
}

// describeSchedule returns the schedule as it is shown. That its workflow is unknown is
// not stored: it is a fact about this process.
func (sh *shard) describeSchedule(stored *machine.Schedule) Schedule {
	s := sh.scheduled(stored)
	if sh.unstartable[s.Name] {
		s.refuse(unknownWorkflow(s.Workflow))
	}
	return s
}

// warnOfSchedules makes a warning of each schedule whose last start was refused.
func (sh *shard) warnOfSchedules() {
	var list []Trouble
	for _, stored := range sh.m.Schedules() {
		if s := sh.describeSchedule(stored); s.Refused != nil {
			list = append(list, Trouble{
				What:  fmt.Sprintf("schedule %s: a start of workflow %s was refused", s.Name, s.Workflow),
				Since: s.Refused.Since, Error: s.Refused.Error,
			})
		}
	}
	slices.SortFunc(list, func(a, b Trouble) int { return strings.Compare(a.What, b.What) })
	sh.health.warn(list)
}

func (sh *shard) listSchedules(ctx context.Context) ([]Schedule, error) {
	return ask(ctx, sh, func(*turn) (list []Schedule, err error) {
		for _, s := range sh.m.Schedules() {
			list = append(list, sh.describeSchedule(s))
		}
		return list, nil
	})
}
