package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Schedule starts a workflow by the calendar.
type Schedule struct {
	Name     string          `json:"name"`
	Workflow string          `json:"workflow"`
	Cron     string          `json:"cron"` // five fields, or @daily and its like; TZ=Europe/Berlin may stand before
	Input    json.RawMessage `json:"input,omitempty"`
	Skip     bool            `json:"skip,omitempty"` // starts that were missed are not made up for; otherwise once
	Next     time.Time       `json:"next"`           // the next start
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

// SetSchedules makes these all the schedules there are. One that is known goes on
// with its next start, unless it has changed.
func (e *Engine) SetSchedules(ctx context.Context, list []Schedule) error {
	if err := e.checkSchedules(list); err != nil {
		return err
	}
	return e.spread(ctx, list)
}

// checkSchedules says what is wrong with the schedules.
func (e *Engine) checkSchedules(list []Schedule) error {
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
	}
	return errors.Join(errs...)
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
			}
		}
		for _, s := range wanted {
			if old, ok := sh.m.Schedules()[s.Name]; !ok || string(old.Data) != string(s.data()) {
				t.schedule(&s, time.Unix(0, t.now))
			}
		}
		return nil
	})
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
		if sh.handlers.workflow(sh.scheduled(s).Workflow) != nil {
			due = min(due, s.Due)
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
	for _, stored := range sh.m.Schedules() {
		if stored.Due > t.now {
			continue
		}
		s := sh.scheduled(stored)
		w := sh.handlers.workflow(s.Workflow)
		if w == nil {
			continue
		}
		now := time.Unix(0, t.now)
		if late := now.Sub(s.Next); !s.Skip || late < time.Minute {
			start := &machine.Start{
				Hash: w.def.Hash(), Input: s.Input, Source: "schedule " + s.Name,
				Key: "schedule/" + s.Name + "/" + s.Next.UTC().Format(time.RFC3339),
			}
			if err := t.startScheduled(start, w, s.Next); err != nil {
				sh.cfg.Logger.Error("a scheduled start was refused", "schedule", s.Name, "error", err)
			}
		}
		t.schedule(&s, now)
	}
}

func (t *turn) startScheduled(s *machine.Start, w *Workflow, at time.Time) (err error) {
	if s.Input, err = w.prepared(s.Input, at); err != nil {
		return err
	}
	if len(s.Input) > t.sh.cfg.MaxPayload {
		return fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(s.Input), t.sh.cfg.MaxPayload)
	}
	_, _, err = t.start(s, w.def)
	return err
}

func (sh *shard) listSchedules(ctx context.Context) ([]Schedule, error) {
	return ask(ctx, sh, func(*turn) (list []Schedule, err error) {
		for _, s := range sh.m.Schedules() {
			list = append(list, sh.scheduled(s))
		}
		return list, nil
	})
}
