package steps

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
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
