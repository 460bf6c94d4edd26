package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tideover/tideover/engine"
)

// Shapes says which kind of result each step of a flow has, by id: the kind of the step, for a
// signal with the name of the event after a space, for a question with its default, and in brackets
// if the result is a list. It is stored with on-give-up, which gets the results of the operations
// of the flow.
type Shapes map[string]string

// shapes returns the shapes of the results of a flow; nil for another workflow.
func (w *Workflow) shapes() Shapes {
	if !w.IsFlow() {
		return nil
	}
	all := Shapes{}
	for _, s := range w.Steps {
		all[s.ID] = s.shape().String()
	}
	return all
}

// shape is how the result of a step looks.
type shape struct {
	id, kind      string // of the step
	event         string // the signal that it waits for
	choice        string // the answer to its question if there is none in time; "" for none
	isList        bool   // it has a result for each item
	isConditional bool   // it may be skipped
}

// String returns the shape as Shapes has it.
func (r *shape) String() string {
	text := r.kind
	if more := r.event + r.choice; more != "" {
		text += " " + more
	}
	if r.isList {
		text = "[" + text + "]"
	}
	return text
}

// of returns the shape of the result of a step.
func (all Shapes) of(id string) *shape {
	r := &shape{id: id}
	text, isList := strings.CutPrefix(all[id], "[")
	if r.isList = isList; isList {
		text = strings.TrimSuffix(text, "]")
	}
	var more string
	if r.kind, more, _ = strings.Cut(text, " "); r.kind == "wait-for" {
		r.event = more
	} else {
		r.choice = more
	}
	return r
}

// operation returns the name of the step's operation.
func (r *shape) operation() string {
	if r.kind == "wait-for" {
		return r.event + "[" + r.id + "]"
	}
	return r.id
}

// fields returns the fields of the result; nil if it is a list.
func (r *shape) fields() (fields []string) {
	if r.isList {
		return nil
	}
	fields = r.itemFields()
	if r.isConditional {
		fields = append(fields, "skipped")
	}
	return fields
}

// itemFields returns the fields of the step's result, or of one of its items, apart from skipped.
func (r *shape) itemFields() []string {
	switch r.kind {
	case "run", "http":
		return []string{"stdout", "stderr", "output", "exit", "status", "truncated"}
	case "wait-for":
		return []string{"output", "timed_out"}
	case "approve":
		return []string{"choice", "by", "words", "timed_out"}
	case "workflow", "sleep":
		return []string{"output"}
	}
	return nil
}

// skipped returns the value of a step that was skipped.
func (r *shape) skipped() any {
	if r.isList {
		return []any{}
	}
	v := r.empty()
	v["skipped"] = true
	return v
}

// empty returns the fields of the step's result, or of one of its items, without values.
func (r *shape) empty() map[string]any {
	v := map[string]any{}
	for _, name := range r.itemFields() {
		v[name] = "" // a text
	}
	for name, empty := range map[string]any{"output": nil, "exit": 0, "status": 0, "truncated": false, "timed_out": false} {
		if _, has := v[name]; has {
			v[name] = empty
		}
	}
	return v
}

// value returns the stored result of the step as templates see it.
func (r *shape) value(text json.RawMessage) (any, error) {
	if !r.isList {
		return r.itemValue(text)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(text, &items); err != nil {
		return nil, fmt.Errorf("result of %q: %w", r.id, err)
	}
	list := make([]any, len(items))
	for i, item := range items {
		var err error
		if list[i], err = r.itemValue(item); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// itemValue is value for a step without for-each, or for one of its items.
func (r *shape) itemValue(text json.RawMessage) (map[string]any, error) {
	v := map[string]any{}
	var err error
	switch r.kind {
	case "run", "http":
		var res StepResult
		res, err = stepResult(text)
		v = res.value()
	case "approve":
		var a engine.Answer
		err = json.Unmarshal(text, &a)
		v["choice"], v["by"], v["words"], v["timed_out"] = a.Choice, a.By, a.Words, a.By == ""
	case "wait-for":
		var got received
		err = json.Unmarshal(text, &got)
		v["output"], v["timed_out"] = nil, got.TimedOut
		if err == nil {
			v["output"], err = decode(got.Output)
		}
	case "workflow":
		v["output"], err = decode(text)
	default:
		v["output"] = nil
	}
	if err != nil {
		return nil, fmt.Errorf("result of %q: %w", r.id, err)
	}
	if r.isConditional && !r.isList {
		v["skipped"] = false
	}
	if out, has := v["output"]; has {
		v["output"] = normal(out)
	}
	return v, nil
}

// received is the result of a step that waits for a signal.
type received struct {
	Output   json.RawMessage `json:"output"`
	TimedOut bool            `json:"timed_out,omitempty"`
}

// failedStep returns the step that made a run give up: the error of a flow begins with it, unless
// the run timed out or an undo failed. Then it is the step of the operation.
func (all Shapes) failedStep(g *engine.GaveUp) string {
	if text, ok := strings.CutPrefix(g.Error, `step "`); ok {
		if id, _, _ := strings.Cut(text, `"`); all[id] != "" {
			return id
		}
	}
	for id := range all {
		r := all.of(id)
		if name := r.operation(); g.Step == name || r.isList && strings.HasPrefix(g.Step, name+"#") {
			return id
		}
	}
	return g.Step
}

// values returns the results of steps as templates see them, from the operations of a run that gave
// up. failed is the step that failed. A step or an item that has no result has a result with exit
// code -1.
func (all Shapes) values(g *engine.GaveUp, failed string) (map[string]any, error) {
	values := make(map[string]any, len(all))
	for id := range all {
		v, err := all.of(id).storedValue(g)
		if err != nil {
			return nil, fmt.Errorf("result of %q: %w", id, err)
		}
		if v, ok := v.(map[string]any); ok && id == failed {
			v["skipped"] = false // also if it has failed before its operation
		}
		values[id] = v
	}
	return values, nil
}

// storedValue returns the value of the step's result.
func (r *shape) storedValue(g *engine.GaveUp) (any, error) {
	if !r.isList {
		return r.operationValue(g, r.operation())
	}
	items := make([]any, r.countItems(g))
	for i := range items {
		v, err := r.operationValue(g, r.id+"#"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		delete(v, "skipped") // it is no step
		items[i] = v
	}
	return items, nil
}

// countItems returns the number of items of the step.
func (r *shape) countItems(g *engine.GaveUp) int {
	n := g.Operations[r.id].Items
	for ; n < MaxItems; n++ { // the follow-up run of an earlier release does not have their number
		if _, ok := g.Outputs[r.id+"#"+strconv.Itoa(n)]; !ok {
			break
		}
	}
	return n
}

// MaxItems is the most items that a step with for-each can have: a run has at most 20 000 operations,
// and the loop itself is one.
const MaxItems = 19_999

// operationValue returns the value of the result of an operation of the step.
func (r *shape) operationValue(g *engine.GaveUp, name string) (map[string]any, error) {
	text, ok := g.Outputs[name]
	if !ok {
		op, called := g.Operations[name]
		return r.missing(op, called), nil
	}
	if r.kind == "wait-for" {
		out, err := decode(text)
		return map[string]any{"output": normal(out), "timed_out": false, "skipped": false}, err
	}
	v, err := r.itemValue(text)
	if v != nil {
		v["skipped"] = false
	}
	return v, err
}

// missing returns the value of an operation that has no result: it failed, it was not called, or
// the result is too large for the follow-up run. skipped is true if it was not called, because the
// condition was false or the run gave up before.
func (r *shape) missing(op engine.GaveUpOperation, called bool) map[string]any {
	v := r.empty()
	v["skipped"] = !called
	set := func(name string, value any) {
		if _, has := v[name]; has {
			v[name] = value
		}
	}
	if op.Status != "succeeded" {
		set("exit", -1)
	}
	set("truncated", op.Omitted > 0)
	if errors.Is(&engine.OpError{Code: op.Code}, engine.ErrNoEvent) {
		set("timed_out", true)
		if r.kind == "approve" {
			set("choice", r.choice)
		}
	}
	return v
}
