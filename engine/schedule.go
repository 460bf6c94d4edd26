package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
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
	return scheduleSpreader{&e.router}.set(ctx, list)
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
