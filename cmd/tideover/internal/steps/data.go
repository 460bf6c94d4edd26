package steps

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
)

// Data is the data of templates.
type Data struct {
	Input    any                   // .input: the run's input, as decoded from JSON
	Steps    map[string]StepResult // .steps: results by id; a step sees only those that it needs
	Run      RunInfo               // .run
	Schedule time.Time             // .schedule.time in RFC 3339; empty in a run that was started by hand
	Secrets  secret.Resolver       // resolves the references of env values, headers and URLs
}

// RunInfo is the run that a step is part of.
type RunInfo struct {
	ID       string
	Workflow string
	Key      string // the caller's key, if it gave one

	// The first run of the chain of replays and reruns, and its key: those of the run
	// itself if it repeats no other.
	Origin    string
	OriginKey string

	Attempt int       // number of the step's attempt, from 1
	Started time.Time // .today of an input is the day of it, unless the run was scheduled

	// Of a run that gave up, for on-give-up; empty otherwise.
	Step   string // the step that failed
	Reason string // why there was no further attempt
	Error  string // the last one
}

// StepResult is how a step ended.
type StepResult struct {
	Stdout string // a command's, or the body of a response
	Stderr string
	Output any // what Stdout is as JSON; nil if it is none
	Exit   int // a command's exit code
	Status int // a response's HTTP status; 0 for a command

	Truncated bool // there was more than is kept
}

// The fields that templates may use: those of steps, of the env of a workflow, which is
// for steps with different needs, and of a default input.
var (
	StepFields  = template.Fields{First: []string{"input", "steps", "run", "schedule"}}
	EnvFields   = template.Fields{First: []string{"input", "run", "schedule"}}
	InputFields = template.Fields{First: []string{"run", "schedule", "today"}}
)

// scope returns the data for a step. It is an error if a step that it needs has no
// result. For a step of on-give-up such a step has an empty result with the exit code -1.
func (s *Step) scope(d Data) (*template.Scope, error) {
	steps := map[string]any{}
	for _, id := range s.After {
		r, ok := d.Steps[id]
		if !ok && !s.GiveUp {
			return nil, fmt.Errorf("step %q: there is no result of step %q, which it needs", s.ID, id)
		}
		if !ok {
			r.Exit = -1
		}
		steps[id] = map[string]any{
			"stdout": r.Stdout, "stderr": r.Stderr, "output": normal(r.Output), "exit": r.Exit, "status": r.Status, "truncated": r.Truncated,
		}
	}
	sc := d.scope()
	sc.Root["input"], sc.Root["steps"] = normal(d.Input), steps
	sc.Steps, sc.Dir = steps, s.Base
	return sc, nil
}

func (d Data) scope() *template.Scope {
	at := ""
	if !d.Schedule.IsZero() {
		at = d.Schedule.Format(time.RFC3339)
	}
	return &template.Scope{
		Root: map[string]any{
			"run": map[string]any{"id": d.Run.ID, "workflow": d.Run.Workflow, "key": d.Run.Key, "attempt": d.Run.Attempt,
				"origin": d.Run.Origin, "origin_key": d.Run.OriginKey,
				"step": d.Run.Step, "reason": d.Run.Reason, "error": d.Run.Error},
			"schedule": map[string]any{"time": at},
		},
		Secrets: d.Secrets,
	}
}

// normal makes whole numbers integers, so that templates can compare them with the
// numbers that people write.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = normal(e)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = normal(e)
		}
		return list
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return normal(f)
		}
		return v // too long for arithmetic: as it was written
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
		return v
	default:
		return v
	}
}

// Input returns the input of a run: the workflow's default with its templates
// written out, and over it what the caller gave. If both are maps, the caller's
// keys override; otherwise what the caller gave is the input. nil is nothing.
func (w *Workflow) Input(d Data, given any) (any, error) {
	byCaller, isMap := given.(map[string]any)
	if given != nil && !isMap {
		return given, nil
	}
	sc := d.scope()
	day := d.Schedule
	if day.IsZero() {
		day = d.Run.Started
	}
	if w.Schedule != nil {
		day = day.In(w.Schedule.Location())
	}
	sc.Root["today"] = day.Format("2006-01-02")
	value, err := renderPart(w.DefaultInput, sc)
	if err != nil {
		return nil, fmt.Errorf("workflow %q: input: %w", w.Name, err)
	}
	def, ok := value.(map[string]any)
	if !ok && given != nil {
		return given, nil
	}
	if ok {
		maps.Copy(def, byCaller)
	}
	return value, nil
}

func renderPart(v any, sc *template.Scope) (any, error) {
	switch v := v.(type) {
	case *template.Text:
		return v.Render(sc)
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			r, err := renderPart(e, sc)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			m[k] = r
		}
		return m, nil
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			r, err := renderPart(e, sc)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			list[i] = r
		}
		return list, nil
	default:
		return v, nil
	}
}
