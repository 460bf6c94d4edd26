package steps

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// maxQuestion is the most bytes of a question; a longer one is cut.
const maxQuestion = 4 << 10

// functionSteps is the name of the function of all flows of the file.
const functionSteps = "steps"

// Functions returns the functions that an engine needs for workflows that are flows.
func (r *Runner) Functions() map[string]engine.FlowFunc {
	return map[string]engine.FlowFunc{functionSteps: r.flow}
}

// flow is the function of all flows of the file. It does what the stored steps of the run say: a
// change of the file does not affect runs in progress.
func (r *Runner) flow(f *engine.Flow, _ json.RawMessage) ([]byte, error) {
	t := f.Task()
	spec, err := r.specs.parse(t.Args)
	if err != nil {
		return nil, err
	}
	data, err := r.newData(t.Input, nil, RunInfo{
		ID: t.Run, Workflow: t.Workflow, Key: t.Key, Origin: t.Origin, OriginKey: t.OriginKey, Started: t.Created,
	})
	if err != nil {
		return nil, err
	}
	c := &flowRun{runner: r, spec: spec, data: data, values: map[string]any{}, results: map[string]json.RawMessage{}}
	branches := make([]engine.FlowBranch, len(spec.Steps))
	for i, s := range spec.Steps {
		branches[i] = engine.Branch(s.ID, func(f *engine.Flow) error { return c.step(f, s) }, engine.After(s.Needs...))
	}
	if err := engine.Branches(f, branches...); err != nil {
		return nil, inWordsOfFile(err)
	}
	return c.output()
}

// specCache has the parsed definitions of flows: the function of a run is called again after each
// long wait.
type specCache struct {
	mu    sync.Mutex
	specs map[[sha256.Size]byte]*flowSpec
}

// maxSpecs limits the cache. With more definitions in use, it is emptied.
const maxSpecs = 1000

func (c *specCache) parse(text json.RawMessage) (*flowSpec, error) {
	sum := sha256.Sum256(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if spec := c.specs[sum]; spec != nil {
		return spec, nil
	}
	spec, err := parseFlowSpec(text)
	if err != nil {
		return nil, err
	}
	if c.specs == nil || len(c.specs) >= maxSpecs {
		c.specs = map[[sha256.Size]byte]*flowSpec{}
	}
	c.specs[sum] = spec
	return spec, nil
}

// flowRun is one call of the function of a flow.
type flowRun struct {
	runner  *Runner
	spec    *flowSpec
	data    Data                       // without the results of steps
	values  map[string]any             // results of the steps that have ended, as templates see them
	results map[string]json.RawMessage // the same, as they are stored
}

// step executes a step, or skips it.
func (c *flowRun) step(f *engine.Flow, s *Step) error {
	d := c.data
	d.Values = make(map[string]any, len(s.After)) // of its own: attempts read it in other goroutines
	for _, id := range s.After {
		d.Values[id] = c.values[id]
	}
	if s.When != nil {
		r, err := s.renderer(d)
		if err != nil {
			return err
		}
		v, err := r.value(s.When, "when")
		if err != nil {
			return err
		}
		if !template.IsTrue(v) {
			c.values[s.ID], c.results[s.ID] = s.shape().skipped(), json.RawMessage("null")
			if s.ForEach != nil {
				c.results[s.ID] = json.RawMessage("[]")
			}
			return engine.Skip(f, s.ID)
		}
	}
	text, err := c.perform(f, s, d)
	if err != nil {
		return s.explain(err)
	}
	c.results[s.ID] = text
	c.values[s.ID], err = s.shape().value(text)
	return err
}

// stepError is the error of an operation in the words of the file. It unwraps to the original
// error: from that, the engine knows which operations a retry of the run executes again.
type stepError struct {
	text string
	err  error
}

func (e *stepError) Error() string { return e.text }
func (e *stepError) Unwrap() error { return e.err }

// explain returns the error of the step's operation in the words of the file.
func (s *Step) explain(err error) error {
	text := ""
	op, isOp := errors.AsType[*engine.OpError](err)
	many, isMap := errors.AsType[*engine.MapError](err)
	switch {
	case isOp && op.Code == "too-many-operations":
		text = "a run can have at most 20000 operations, the items of for-each included; let child workflows do a part of the items"
	case isMap:
		first := slices.Min(slices.Collect(maps.Keys(many.Errors)))
		text = fmt.Sprintf("item %d: %s", first, strings.TrimPrefix(many.Errors[first].Text, s.place()))
		if n := len(many.Errors); n > 1 {
			text = fmt.Sprintf("%d items failed, the first: %s", n, text)
		}
	case isOp && errors.Is(err, engine.ErrNoEvent) && s.Approve != nil:
		text = "no answer in time"
	case isOp && errors.Is(err, engine.ErrNoEvent):
		text = fmt.Sprintf("no signal %q came in time", s.WaitFor.Event)
	case isOp:
		text = op.Text
	default:
		return err
	}
	return &stepError{s.place() + strings.TrimPrefix(text, s.place()), err} // the error of a template has it already
}

// place returns the beginning of an error of the step.
func (s *Step) place() string { return fmt.Sprintf("step %q: ", s.ID) }

// failure returns an error of the step that is not that of an operation.
func (s *Step) failure(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &stepError{s.place() + err.Error(), err}
}

// inWordsOfFile removes the name of the branch from the error of a step, which has it already.
func inWordsOfFile(err error) error {
	if step, ok := errors.AsType[*stepError](err); ok {
		return &stepError{step.text, err}
	}
	return err
}

// perform executes the operation of a step, and returns its result.
func (c *flowRun) perform(f *engine.Flow, s *Step, d Data) (json.RawMessage, error) {
	switch s.Kind() {
	case "run", "http":
		return c.action(f, s, d)
	case "sleep":
		return json.RawMessage("null"), c.sleep(f, s, d)
	case "wait-for":
		return c.waitFor(f, s)
	case "approve":
		return c.approve(f, s, d)
	case "workflow":
		return c.child(f, s, d)
	}
	return nil, fmt.Errorf("step %q: %w", s.ID, s.checkKind())
}

// attempts returns the options of the attempts of a command or a request.
func (s *Step) attempts() engine.AttemptOption {
	return engine.Attempts(engine.Policy(s.Policy.String()), engine.MaxLost(s.MaxLost))
}

// declared returns the options with which a list of workflows shows the step.
func (s *Step) declared() []engine.DeclaredOption {
	opts := []engine.DeclaredOption{engine.After(s.Needs...)}
	if s.isAction() {
		opts = append(opts, engine.WithPolicy(s.Policy), engine.Concurrency(s.Concurrency), engine.MaxLost(s.MaxLost))
	}
	return opts
}

// action executes a command or a request, once or for each item.
func (c *flowRun) action(f *engine.Flow, s *Step, d Data) (json.RawMessage, error) {
	r := c.runner
	if s.ForEach == nil {
		do := func(ctx context.Context) (json.RawMessage, error) { return r.operate(ctx, s, d) }
		if s.Undo == nil {
			return engine.Do(f, s.ID, do, s.attempts())
		}
		undo := func(ctx context.Context, result *json.RawMessage) error { return r.undo(ctx, s, d, result) }
		return engine.DoUndo(f, s.ID, do, undo, s.attempts(), engine.UndoPolicy(s.Undo.Policy.String()))
	}
	texts, err := s.renderer(d)
	if err != nil {
		return nil, err
	}
	items, err := texts.items()
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, item Item) (json.RawMessage, error) { return r.operate(ctx, s, d.with(item)) }
	parallel, labels := engine.Parallel(s.Parallel), c.runner.labels(items)
	if s.Undo == nil {
		return list(engine.Map(f, s.ID, items, do, s.attempts(), parallel, labels))
	}
	undo := func(ctx context.Context, item Item, result *json.RawMessage) error {
		return r.undo(ctx, s, d.with(item), result)
	}
	return list(engine.MapUndo(f, s.ID, items, do, undo, s.attempts(), parallel, labels, engine.UndoPolicy(s.Undo.Policy.String())))
}

func (d Data) with(item Item) Data {
	d.Item = &item
	return d
}

// list returns results as one JSON list.
func list(results []json.RawMessage, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	text := []byte{'['}
	for i, r := range results {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, r...)
	}
	return append(text, ']'), nil
}

// operate makes an attempt of a command or a request.
func (r *Runner) operate(ctx context.Context, s *Step, d Data) (json.RawMessage, error) {
	t, _ := engine.TaskOf(ctx)
	d.Secrets, d.Run.Attempt = r.Secrets(), t.Attempt
	res, err := r.attempt(ctx, s, d, t)
	if err != nil {
		err = Postpone(err, t)
		if r.Hold != nil {
			err = r.Hold(err)
		}
		return nil, err
	}
	return res.encode()
}

// undo makes an attempt of the undo of a step. The result is nil if it is not known whether the
// step has had an effect.
func (r *Runner) undo(ctx context.Context, s *Step, d Data, result *json.RawMessage) error {
	undone := StepResult{Exit: -1}
	if result != nil {
		var err error
		if undone, err = stepResult(*result); err != nil {
			return retry.Permanent(fmt.Errorf("result of %q: %w", s.ID, err))
		}
	}
	d.Result = undone.value()
	_, err := r.operate(ctx, s.Undo, d)
	return err
}

func (c *flowRun) sleep(f *engine.Flow, s *Step, d Data) error {
	r, err := s.renderer(d)
	if err != nil {
		return err
	}
	v, err := r.value(s.Sleep, "sleep")
	if err != nil {
		return err
	}
	wait, err := retry.ParseDuration(strings.TrimSpace(fmt.Sprint(v)))
	if err != nil {
		return s.failure("sleep: %w", err)
	}
	return engine.Sleep(f, s.ID, wait)
}

func (c *flowRun) waitFor(f *engine.Flow, s *Step) (json.RawMessage, error) {
	w := s.WaitFor
	opts := []engine.AwaitOption{engine.ForKey(s.ID)}
	if w.Timeout > 0 {
		opts = append(opts, engine.Within(w.Timeout))
	}
	payload, err := engine.Await[json.RawMessage](f, w.Event, opts...)
	r := received{Output: payload}
	if errors.Is(err, engine.ErrNoEvent) && w.Continue {
		r, err = received{TimedOut: true}, nil
	}
	if err != nil {
		return nil, err
	}
	return template.EncodeJSON(r)
}

func (c *flowRun) approve(f *engine.Flow, s *Step, d Data) (json.RawMessage, error) {
	a := s.Approve
	r, err := s.renderer(d)
	if err != nil {
		return nil, err
	}
	text, err := a.Question.Render(r.scope)
	if err != nil {
		return nil, s.failure("approve: %w", err)
	}
	if text = strings.TrimSpace(textfmt.TruncateWithin(text, maxQuestion, "…")); text == "" {
		return nil, s.failure("approve: the question is empty")
	}
	var opts []engine.AwaitOption
	if a.Timeout > 0 {
		opts = append(opts, engine.Within(a.Timeout))
	}
	answer, err := engine.Ask(f, s.ID, engine.Question{Text: text, Choices: a.Choices, Who: a.Who, Default: a.Default}, opts...)
	if err != nil {
		return nil, err
	}
	if answer.Choice == engine.Reject && !a.Continue {
		return nil, s.failure("%s", rejection(answer))
	}
	return template.EncodeJSON(answer)
}

// rejection says who has rejected, and with which words.
func rejection(a engine.Answer) string {
	switch {
	case a.By == "":
		return "rejected, because there was no answer in time"
	case a.Words == "":
		return "rejected by " + a.By
	}
	return fmt.Sprintf("rejected by %s: %s", a.By, a.Words)
}

// child starts a child, or one for each item, and waits for its end.
func (c *flowRun) child(f *engine.Flow, s *Step, d Data) (json.RawMessage, error) {
	w := engine.Registered(s.Workflow)
	if s.ForEach == nil {
		input, err := childInput(s, d)
		if err != nil {
			return nil, err
		}
		return engine.Child[json.RawMessage](f, s.ID, w, input)
	}
	texts, err := s.renderer(d)
	if err != nil {
		return nil, err
	}
	items, err := texts.items()
	if err != nil {
		return nil, err
	}
	inputs := make([]json.RawMessage, len(items))
	for i, item := range items {
		if inputs[i], err = childInput(s, d.with(item)); err != nil {
			return nil, err
		}
	}
	return list(engine.Children[json.RawMessage, json.RawMessage](f, s.ID, w, inputs, engine.Parallel(s.Parallel), c.runner.labels(items)))
}

// labels shows texts as they are, and other items as JSON, with secrets masked: a secret that is cut
// is not recognised later.
func (r *Runner) labels(items []Item) engine.ItemsOption {
	return engine.Labels(func(i int) string {
		if text, ok := items[i].Value.(string); ok {
			return r.Redactor.String(text)
		}
		text, _ := template.EncodeJSON(items[i].Value) // it is from JSON
		return r.Redactor.String(string(text))
	})
}

// childInput returns the input of a child as JSON.
func childInput(s *Step, d Data) (json.RawMessage, error) {
	r, err := s.renderer(d)
	if err != nil {
		return nil, err
	}
	v, err := renderTree(s.Input, r.scope, (*template.Text).Value)
	if err != nil {
		return nil, s.failure("input: %w", err)
	}
	if v == nil {
		return json.RawMessage("null"), nil
	}
	return template.EncodeJSON(v)
}

// output returns the output of the run, which is that of a workflow of plain steps: the result of
// the only step that no other step needs, or a map of the results of all such steps. Results that
// are too large together are replaced by their sizes.
func (c *flowRun) output() ([]byte, error) {
	var last []string
	for _, s := range c.spec.Steps {
		if !slices.ContainsFunc(c.spec.Steps, func(other *Step) bool { return slices.Contains(other.Needs, s.ID) }) {
			last = append(last, s.ID)
		}
	}
	const most = MaxPayload - 4<<10
	results := make(map[string]json.RawMessage, len(last))
	for _, id := range last {
		if results[id] = c.results[id]; len(results[id]) > most/len(last) {
			results[id], _ = json.Marshal(map[string]int{"omitted_bytes": len(c.results[id])}) // can't fail
		}
	}
	if len(last) == 1 {
		return results[last[0]], nil
	}
	return template.EncodeJSON(results)
}
