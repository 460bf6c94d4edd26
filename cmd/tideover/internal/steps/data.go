package steps

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
)

// Data is the data that the templates of a step or an input can use.
type Data struct {
	Input    any                   // .input: the run's input, as decoded from JSON
	Steps    map[string]StepResult // .steps: results by id; a step sees only the results of steps that it needs
	Run      RunInfo               // .run
	Schedule time.Time             // .schedule.time, in RFC 3339; zero in a run that no schedule started
	Secrets  secret.Resolver       // resolves the references of env values, headers and URLs

	AllowHosts hosts.Set // hosts that templates in URLs may choose, in addition to those that the file has

	// Only for a step of a flow; see flowRun.
	Values map[string]any // .steps instead of Steps: the values of results by id
	Item   *Item          // .item and .index of a step with for-each; nil for others
	Result any            // .result in an undo: the value of the result that it undoes; nil for others
}

// Item is an item of the list of a step with for-each.
type Item struct {
	Index int `json:"index"`
	Value any `json:"item"`
}

// RunInfo is the run that a step is part of.
type RunInfo struct {
	ID       string
	Workflow string
	Key      string // the key that the caller started the run with; "" for none

	// The id and the key of the first run in a chain of replays and reruns. A run that is
	// neither a replay nor a rerun has its own id and key here.
	Origin    string
	OriginKey string

	Attempt int       // number of the step's attempt, from 1
	Started time.Time // .today of an input is this day, or the day of the schedule if there is one

	// Only for on-give-up, about the run that gave up; empty otherwise.
	Step   string // the step that failed
	Reason string // why there was no further attempt
	Error  string // the last error
}

// StepResult is the result of a step that has ended.
type StepResult struct {
	Stdout string // standard output of a command, or the body of a response
	Stderr string
	Output any // Stdout decoded as JSON; nil if it is not JSON
	Exit   int // exit code of a command
	Status int // HTTP status of a response; 0 for a command

	Truncated bool // Stdout or Stderr was longer and is truncated
}

// The fields that templates may use: in a step, in the env of a workflow, and in a default
// input. The env can't use steps, because it is shared by steps with different needs.
var (
	StepFields  = template.Fields{First: []string{"input", "steps", "run", "schedule"}}
	EnvFields   = template.Fields{First: []string{"input", "run", "schedule"}}
	InputFields = template.Fields{First: []string{"run", "schedule", "today"}}

	// FlowFields are for the texts that say what a flow does: when, for-each, sleep and others.
	// They are not rendered for an attempt.
	FlowFields = template.Fields{First: []string{"input", "steps", "run", "schedule"}, Run: []string{"id", "workflow", "key", "origin", "origin_key"}}

	// storedFields are the fields of any stored text, which was checked when the file was read.
	storedFields = template.Fields{First: []string{"input", "steps", "run", "schedule", "item", "index", "result"}}
)

// value returns the result as templates see it.
func (r StepResult) value() map[string]any {
	return map[string]any{
		"stdout": r.Stdout, "stderr": r.Stderr, "output": normal(r.Output), "exit": r.Exit, "status": r.Status, "truncated": r.Truncated,
	}
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

// normal converts whole numbers in a JSON value to int64, so that templates can compare
// them with integer constants.
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
		return v // too large for int64: keep its digits
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
		return v
	default:
		return v
	}
}

// Input returns the input of a run. given is the caller's input, nil if there is none.
// The workflow's default input is rendered. If it and given are maps, they are merged,
// and given overrides the default. Otherwise the input is given, or the default if given
// is nil.
func (w *Workflow) Input(d Data, given any) (any, error) {
	byCaller, isMap := given.(map[string]any)
	if given != nil && !isMap {
		return given, nil
	}
	sc := d.scope()
	day := cmp.Or(d.Schedule, d.Run.Started)
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

// renderPart renders the texts of a JSON value.
func renderPart(v any, sc *template.Scope) (any, error) {
	return renderTree(v, sc, func(t *template.Text, sc *template.Scope) (any, error) { return t.Render(sc) })
}

// renderTree replaces the texts of a JSON value by what render returns.
func renderTree(v any, sc *template.Scope, render func(*template.Text, *template.Scope) (any, error)) (any, error) {
	switch v := v.(type) {
	case *template.Text:
		return render(v, sc)
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			r, err := renderTree(e, sc, render)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			m[k] = r
		}
		return m, nil
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			r, err := renderTree(e, sc, render)
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

// data returns the data for the templates of a step.
func (r *Runner) data(t *engine.Task) (Data, error) {
	outputs := map[string]json.RawMessage{}
	for _, step := range t.Before() {
		text, err := t.Output(step)
		if err != nil {
			return Data{}, err
		}
		outputs[step] = text
	}
	return r.newData(t.Input, outputs, RunInfo{
		ID: t.Run, Workflow: t.Workflow, Key: t.Key, Origin: t.Origin, OriginKey: t.OriginKey, Attempt: t.Attempt, Started: t.Created,
	})
}

// newData returns the data for the templates of a step, from the stored input of the run
// and the stored outputs of its steps.
func (r *Runner) newData(input json.RawMessage, outputs map[string]json.RawMessage, run RunInfo) (Data, error) {
	d := Data{Steps: map[string]StepResult{}, Secrets: r.Secrets(), Schedule: scheduledFor(run.OriginKey), Run: run}
	if r.AllowHosts != nil {
		d.AllowHosts = r.AllowHosts()
	}
	var err error
	if d.Input, err = decode(input); err != nil {
		return d, fmt.Errorf("input of the run: %w", err)
	}
	for step, text := range outputs {
		if d.Steps[step], err = stepResult(text); err != nil {
			return d, fmt.Errorf("result of %q: %w", step, err)
		}
	}
	return d, nil
}

// giveUpData returns the data for the templates of on-give-up: the run that gave up, the
// reason, and the results of its steps.
func (r *Runner) giveUpData(s *Step, t *engine.Task) (Data, error) {
	var g engine.GaveUp
	if err := json.Unmarshal(t.Input, &g); err != nil {
		return Data{}, fmt.Errorf("input of the run: %w", err)
	}
	if g.Origin == "" { // the run is neither a replay nor a rerun
		g.Origin, g.OriginKey = g.Run, g.Key
	}
	run := RunInfo{
		ID: g.Run, Workflow: g.Workflow, Key: g.Key, Origin: g.Origin, OriginKey: g.OriginKey, Attempt: cmp.Or(g.StepAttempts, g.Attempts), Started: g.Created,
		Step: g.Step, Error: g.Error, Reason: g.Reason,
	}
	if s.Shapes == nil {
		return r.newData(g.Input, g.Outputs, run)
	}
	run.Step = s.Shapes.failedStep(&g)
	d, err := r.newData(g.Input, nil, run)
	if err == nil {
		d.Values, err = s.Shapes.values(&g, run.Step)
	}
	return d, err
}

// scheduledFor returns the time that a run was scheduled for, which is part of its key. It
// is zero for a run that no schedule started.
func scheduledFor(key string) time.Time {
	if !strings.HasPrefix(key, "schedule/") {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, key[strings.LastIndexByte(key, '/')+1:])
	return at
}
