package steps

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// Shapes says which kind of result each step of a flow has, by id: the kind of the step, for a
// signal with the name of the event after a space, and in brackets if the result is a list. It is
// stored with on-give-up, which gets the results of the operations of the flow.
type Shapes map[string]string

// shapes returns the shapes of the results of a flow; nil for another workflow.
func (w *Workflow) shapes() Shapes {
	if !w.IsFlow() {
		return nil
	}
	all := Shapes{}
	for _, s := range w.Steps {
		shape := s.Kind()
		if s.WaitFor != nil {
			shape += " " + s.WaitFor.Event
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
	kind, event, _ := strings.Cut(shape, " ")
	switch kind {
	case "run":
		s.Texts.Run = []*template.Text{nil}
	case "http":
		s.Method, s.Texts.URL = "GET", new(template.Text)
	case "sleep":
		s.Sleep = new(template.Text)
	case "wait-for":
		s.WaitFor = &WaitFor{Event: event}
	case "approve":
		s.Approve = new(Approve)
	case "workflow":
		s.Workflow = id
	}
	return s
}

// values returns the results of steps as templates see them, from the results of the operations of
// a run that gave up. A step that has no result has a result with exit code -1.
func (all Shapes) values(results map[string]json.RawMessage) (map[string]any, error) {
	values := make(map[string]any, len(all))
	for id := range all {
		s := all.step(id)
		var err error
		if values[id], err = s.storedValue(results); err != nil {
			return nil, fmt.Errorf("result of %q: %w", id, err)
		}
	}
	return values, nil
}

// storedValue returns the value of the step's result.
func (s *Step) storedValue(results map[string]json.RawMessage) (any, error) {
	if s.ForEach != nil {
		items := []any{}
		for i := 0; ; i++ {
			text, ok := results[s.ID+"#"+strconv.Itoa(i)]
			if !ok {
				return items, nil
			}
			v, err := s.itemValue(text)
			if err != nil {
				return nil, err
			}
			items = append(items, v)
		}
	}
	if s.WaitFor != nil {
		text, ok := results[s.WaitFor.Event+"["+s.ID+"]"]
		if !ok {
			return s.missing(), nil
		}
		out, err := decode(text)
		return map[string]any{"output": normal(out), "timed_out": false}, err
	}
	text, ok := results[s.ID]
	if !ok {
		return s.missing(), nil
	}
	return s.itemValue(text)
}

// missing returns the value of a step that has no result, because it failed or did not run.
func (s *Step) missing() any {
	s.When = nil
	v, _ := s.skipped().(map[string]any) // not a list: storedValue handles those
	delete(v, "skipped")
	if _, has := v["exit"]; has {
		v["exit"] = -1
	}
	return v
}
