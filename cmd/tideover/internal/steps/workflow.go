package steps

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/cron"
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
	text := s.Cron
	if s.TimeZone != "" {
		text = "TZ=" + s.TimeZone + " " + text
	}
	return engine.Schedule{Name: workflow, Workflow: workflow, Cron: text, Skip: s.Missed == "skip"}
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

	loc *time.Location // nil means the machine's zone
}

// Location returns the schedule's time zone.
func (s *Schedule) Location() *time.Location { return cmp.Or(s.loc, time.Local) }

// SetTimeZone sets the time zone by its name.
func (s *Schedule) SetTimeZone(name string) error {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" {
		return fmt.Errorf("%q is not a time zone such as Europe/Berlin or UTC", name)
	}
	s.TimeZone, s.loc = name, loc
	return nil
}

// SetCron sets the expression and checks it. The interval of @every may have days here.
func (s *Schedule) SetCron(text string) error {
	if strings.Contains(text, "TZ=") {
		return fmt.Errorf("TZ= is not allowed here; use the key time-zone, or write the schedule as one text such as TZ=Europe/Berlin 0 3 * * *")
	}
	if every, ok := strings.CutPrefix(text, "@every "); ok {
		d, err := retry.ParseDuration(strings.TrimSpace(every))
		if err != nil {
			return err
		}
		text = "@every " + textfmt.CompactDuration(d)
	}
	s.Cron = text
	_, err := cron.Parse(text, true)
	return err
}
