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

// The handlers of steps that are data.
const (
	handlerCommand = "command"
	handlerHTTP    = "http"
	handlerGiveUp  = "give-up"
)

// giveUpSuffix names the workflow that runs when a run of another gave up.
const giveUpSuffix = ".on-give-up"

// Alarm returns the workflow that tells notifiers that a run of another gave up.
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

// Named returns a workflow that does what another does, under a name of its own,
// and what the parts add to it.
func Named(name string, w *Workflow, secrets secret.Resolver, tell Alarm, more ...engine.Part) (*engine.Workflow, error) {
	parts := []engine.Part{
		engine.Timeout(w.Timeout), engine.MaxRuns(w.Concurrency),
		engine.PrepareInput(func(given json.RawMessage, at time.Time) (json.RawMessage, error) {
			return prepare(w, given, at, secrets)
		}),
		engine.CompareArgs(SameWork),
	}
	for _, s := range w.Steps {
		parts = append(parts, engine.Call(s.ID, handler(s), s,
			engine.After(s.Needs...), engine.WithPolicy(s.Policy), engine.Concurrency(s.Concurrency), engine.MaxLost(s.MaxLost)))
	}
	if len(w.Notify) > 0 {
		alarm, err := tell(name, w.Notify)
		if err != nil {
			return nil, err
		}
		parts = append(parts, engine.OnGiveUp(alarm))
	}
	if w.OnGiveUp != nil {
		alarm, err := engine.NewWorkflow(name+giveUpSuffix,
			engine.Call("do", handlerGiveUp, w.OnGiveUp, engine.WithPolicy(w.OnGiveUp.Policy)))
		if err != nil {
			return nil, err
		}
		parts = append(parts, engine.OnGiveUp(alarm))
	}
	return engine.NewWorkflow(name, append(parts, more...)...)
}

func handler(s *Step) string {
	if s.IsHTTP() {
		return handlerHTTP
	}
	return handlerCommand
}

// prepare puts what a run is started with over the workflow's default input.
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
		return nil, fmt.Errorf("as JSON: %w", err)
	}
	return text, nil
}

// Schedule is when a workflow starts by itself.
type Schedule struct {
	Cron     string // five fields, or @daily and the like; the interval of @every is in the form of Go
	TimeZone string // as in the time zone database; empty means the machine's
	Missed   string // what to do about times at which the server was not running: "once" or "skip"

	next func(time.Time) time.Time
	loc  *time.Location // nil means the machine's
}

// Next returns the first time after t at which the schedule is due, in the
// schedule's zone. A time that the clocks skip in spring is skipped with them.
func (s *Schedule) Next(t time.Time) time.Time { return s.next(t.In(s.Location())) }

// Location returns the schedule's time zone.
func (s *Schedule) Location() *time.Location { return cmp.Or(s.loc, time.Local) }

// SetTimeZone sets the time zone.
func (s *Schedule) SetTimeZone(name string) error {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" {
		return fmt.Errorf("%q is not a time zone such as Europe/Berlin or UTC", name)
	}
	s.TimeZone, s.loc = name, loc
	return nil
}

// SetCron parses the expression, which is tried out in the time zone. It handles some
// texts before the library, which panics on a zone without a space after it, accepts an
// empty item as an empty set, and an interval of less than a second as a second.
func (s *Schedule) SetCron(text string) error {
	s.Cron = text
	if every, ok := strings.CutPrefix(text, "@every "); ok {
		return s.every(strings.TrimSpace(every))
	}
	switch fields := strings.Fields(text); {
	case strings.Contains(text, "TZ="):
		return fmt.Errorf("the zone is given twice, or not as TZ=Europe/Berlin in front of the fields; use the key time-zone")
	case strings.HasPrefix(text, "@"):
	case len(fields) != 5:
		return fmt.Errorf("it has %d fields; want 5: minute, hour, day of month, month, day of week", len(fields))
	case strings.Contains(" "+strings.Join(fields, " ")+" ", " ,"), strings.Contains(strings.Join(fields, " ")+" ", ", "), strings.Contains(text, ",,"):
		return fmt.Errorf("there is nothing beside a comma")
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

// every is for intervals. They start at round times, so that a restart does not
// shift them.
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
