package steps

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
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
		shape := s.Kind()
		switch {
		case s.WaitFor != nil:
			shape += " " + s.WaitFor.Event
		case s.Approve != nil && s.Approve.Default != "":
			shape += " " + s.Approve.Default
		}
		if s.ForEach != nil {
			shape = "[" + shape + "]"
		}
		all[s.ID] = shape
	}
	return all
}

// step returns a step whose results have the shape.
func (all Shapes) step(id string) *Step {
	s := &Step{ID: id}
	shape, isList := strings.CutPrefix(all[id], "[")
	if isList {
		s.ForEach, shape = []any{}, strings.TrimSuffix(shape, "]")
	}
	kind, more, _ := strings.Cut(shape, " ")
	switch kind {
	case "run":
		s.Texts.Run = []*template.Text{nil}
	case "http":
		s.Method, s.Texts.URL = "GET", new(template.Text)
	case "sleep":
		s.Sleep = new(template.Text)
	case "wait-for":
		s.WaitFor = &WaitFor{Event: more}
	case "approve":
		s.Approve = &Approve{Default: more}
	case "workflow":
		s.Workflow = id
	}
	return s
}

// operation returns the name of the step's operation.
func (s *Step) operation() string {
	if s.WaitFor != nil {
		return s.WaitFor.Event + "[" + s.ID + "]"
	}
	return s.ID
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
		s := all.step(id)
		if name := s.operation(); g.Step == name || s.ForEach != nil && strings.HasPrefix(g.Step, name+"#") {
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
		v, err := all.step(id).storedValue(g)
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
func (s *Step) storedValue(g *engine.GaveUp) (any, error) {
	if s.ForEach == nil {
		return s.operationValue(g, s.operation())
	}
	items := make([]any, s.countItems(g))
	for i := range items {
		v, err := s.operationValue(g, s.ID+"#"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		delete(v, "skipped") // it is no step
		items[i] = v
	}
	return items, nil
}

// countItems returns the number of items of the step.
func (s *Step) countItems(g *engine.GaveUp) int {
	n := g.Operations[s.ID].Items
	for ; n < MaxItems; n++ { // the follow-up run of an earlier release does not have their number
		if _, ok := g.Outputs[s.ID+"#"+strconv.Itoa(n)]; !ok {
			break
		}
	}
	return n
}

// MaxItems is the most items that a step with for-each can have: a run has at most 20 000 operations,
// and the loop itself is one.
const MaxItems = 19_999

// operationValue returns the value of the result of an operation of the step.
func (s *Step) operationValue(g *engine.GaveUp, name string) (map[string]any, error) {
	text, ok := g.Outputs[name]
	if !ok {
		op, called := g.Operations[name]
		return s.missing(op, called), nil
	}
	if s.WaitFor != nil {
		out, err := decode(text)
		return map[string]any{"output": normal(out), "timed_out": false, "skipped": false}, err
	}
	v, err := s.itemValue(text)
	if v != nil {
		v["skipped"] = false
	}
	return v, err
}

// missing returns the value of an operation that has no result: it failed, it was not called, or
// the result is too large for the follow-up run. skipped is true if it was not called, because the
// condition was false or the run gave up before.
func (s *Step) missing(op engine.GaveUpOperation, called bool) map[string]any {
	v := s.empty()
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
		if s.Approve != nil {
			set("choice", s.Approve.Default)
		}
	}
	return v
}
