package steps

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// The names of the handlers that [Runner.Handlers] returns.
const (
	handlerCommand = "command"
	handlerHTTP    = "http"
	handlerGiveUp  = "give-up"
)

// giveUpSuffix is appended to the name of a workflow to name the workflow of its
// on-give-up.
const giveUpSuffix = ".on-give-up"

// Alarm returns a workflow that sends a message by the notifiers. The engine starts it
// when a run of the named workflow gives up.
type Alarm func(workflow string, notifiers []string) (*engine.Workflow, error)

// Workflows returns the workflows for the engine, and their schedules.
func Workflows(specs []*Workflow, secrets secret.Resolver, alarm Alarm) (list []*engine.Workflow, schedules []engine.Schedule, err error) {
	for _, w := range specs {
		made, err := Named(w.Name, w, secrets, alarm)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, made)
		if s := w.Schedule; s != nil {
			schedules = append(schedules, newSchedule(w.Name, s))
		}
	}
	return list, schedules, nil
}

func newSchedule(workflow string, s *Schedule) engine.Schedule {
	cron := s.Cron
	if s.TimeZone != "" {
		cron = "TZ=" + s.TimeZone + " " + cron
	}
	return engine.Schedule{Name: workflow, Workflow: workflow, Cron: cron, Skip: s.Missed == "skip"}
}

// Named returns the workflow w for the engine under another name, with the further parts
// more. alarm makes the workflow that notifies of runs that give up, if w has notifiers.
func Named(name string, w *Workflow, secrets secret.Resolver, alarm Alarm, more ...engine.Part) (*engine.Workflow, error) {
	var parts []engine.Part
	if w.IsFlow() {
		parts = append(parts, engine.CallFunction(functionSteps, newFlowSpec(w)))
	}
	parts = append(parts,
		engine.Timeout(w.Timeout), engine.MaxRuns(w.Concurrency),
		engine.PrepareInput(func(given json.RawMessage, at time.Time) (json.RawMessage, error) {
			return prepare(w, given, at, secrets)
		}),
		engine.CompareArgs(SameWork),
	)
	for _, s := range w.Steps {
		if w.IsFlow() {
			parts = append(parts, engine.Operation(s.ID, s.Kind(), s.declared()...))
			continue
		}
		parts = append(parts, engine.Call(s.ID, handler(s), s,
			engine.After(s.Needs...), engine.WithPolicy(s.Policy), engine.Concurrency(s.Concurrency), engine.MaxLost(s.MaxLost)))
	}
	if len(w.Notify) > 0 {
		followUp, err := alarm(name, w.Notify)
		if err != nil {
			return nil, err
		}
		parts = append(parts, engine.OnGiveUp(followUp))
	}
	if w.OnGiveUp != nil {
		alarm := *w.OnGiveUp
		alarm.Shapes = w.shapes()
		followUp, err := engine.NewWorkflow(name+giveUpSuffix,
			engine.Call("do", handlerGiveUp, &alarm, engine.WithPolicy(w.OnGiveUp.Policy)))
		if err != nil {
			return nil, err
		}
		parts = append(parts, engine.OnGiveUp(followUp))
	}
	return engine.NewWorkflow(name, append(parts, more...)...)
}

func handler(s *Step) string {
	if s.IsHTTP() {
		return handlerHTTP
	}
	return handlerCommand
}

// prepare returns the input of a run as JSON: given, which is the caller's input, merged
// into the workflow's default input. at is the scheduled time, zero if there is none.
func prepare(w *Workflow, given json.RawMessage, at time.Time, secrets secret.Resolver) (json.RawMessage, error) {
	v, err := decode(given)
	if err != nil {
		return nil, err
	}
	d := Data{Run: RunInfo{Workflow: w.Name, Started: time.Now()}, Schedule: at, Secrets: secrets}
	input, err := w.Input(d, v)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(input)
	if err != nil {
		return nil, fmt.Errorf("can't be encoded as JSON: %w", err)
	}
	return text, nil
}

// Schedule determines when runs of a workflow start automatically.
type Schedule struct {
	Cron     string // five fields, a word such as @daily, or @every with a Go duration
	TimeZone string // name in the time zone database; "" means the machine's zone
	Missed   string // after times at which the server was not running: "once" starts one run for all, "skip" none

	next func(time.Time) time.Time
	loc  *time.Location // nil means the machine's zone
}

// Next returns the first time after t at which the schedule is due, in the schedule's
// zone. It never returns a time that the zone skips when clocks go forward.
func (s *Schedule) Next(t time.Time) time.Time { return s.next(t.In(s.Location())) }

// Location returns the schedule's time zone.
func (s *Schedule) Location() *time.Location { return cmp.Or(s.loc, time.Local) }

// SetTimeZone sets the time zone by its name. Call it before [Schedule.SetCron].
func (s *Schedule) SetTimeZone(name string) error {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" {
		return fmt.Errorf("%q is not a time zone such as Europe/Berlin or UTC", name)
	}
	s.TimeZone, s.loc = name, loc
	return nil
}

// SetCron parses the expression and checks that it has a next time in the time zone. It
// checks three things itself: the cron library panics on a time zone without a space after
// it, accepts an empty item as an empty set, and rounds an interval of less than a second
// up to a second.
func (s *Schedule) SetCron(text string) error {
	s.Cron = text
	if every, ok := strings.CutPrefix(text, "@every "); ok {
		return s.every(strings.TrimSpace(every))
	}
	switch fields := strings.Fields(text); {
	case strings.Contains(text, "TZ="):
		return fmt.Errorf("TZ= is not allowed here; use the key time-zone, or write the schedule as one text such as TZ=Europe/Berlin 0 3 * * *")
	case strings.HasPrefix(text, "@"):
	case len(fields) != 5:
		return fmt.Errorf("it has %d fields; want 5: minute, hour, day of month, month, day of week", len(fields))
	case strings.Contains(" "+strings.Join(fields, " ")+" ", " ,"), strings.Contains(strings.Join(fields, " ")+" ", ", "), strings.Contains(text, ",,"):
		return fmt.Errorf("there is an empty item before or after a comma")
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return err
	}
	s.next = parsed.Next
	if parsed.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, s.Location())).IsZero() {
		return fmt.Errorf("there is no such day")
	}
	return nil
}

// every parses the interval of @every. Its times are multiples of the interval since the
// zero time, so that a restart of the server does not shift them.
func (s *Schedule) every(text string) error {
	d, err := retry.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < time.Second {
		return fmt.Errorf("the interval is less than a second")
	}
	if d%time.Second != 0 {
		return fmt.Errorf("the interval is not a whole number of seconds")
	}
	s.Cron = "@every " + textfmt.CompactDuration(d)
	s.next = func(t time.Time) time.Time { return t.Truncate(d).Add(d) }
	return nil
}
