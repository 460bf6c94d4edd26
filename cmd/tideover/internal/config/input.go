package config

import (
	"fmt"
	"maps"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// inputValue is a default input: a value whose texts are templates. The zero
// one is no input.
type inputValue struct {
	value any // texts are *template.Text
}

// readInput reads a default input.
func readInput(r template.Reader, at strictyaml.Place) inputValue {
	return inputValue{readInputPart(r, at, "input")}
}

func readInputPart(r template.Reader, at strictyaml.Place, name string) any {
	switch n := at.Node; n.Kind {
	case strictyaml.KindMap:
		m := map[string]any{}
		at.CheckKeys(func(string) (string, bool) { return "", true })
		for _, p := range n.Pairs {
			m[p.Key.Text] = readInputPart(r, at.Child(p.Key.Text, p.Val), p.Key.Text)
		}
		return m
	case strictyaml.KindList:
		list := []any{}
		for i := range n.Items {
			list = append(list, readInputPart(r, at.Index(i), name))
		}
		return list
	case strictyaml.KindText:
		t, _ := r.Text(at, name, template.WithoutRefs, inputRoots)
		return t
	default:
		return n.Value
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
		day = day.In(w.Schedule.loc)
	}
	sc.Root["today"] = day.Format("2006-01-02")
	value, err := renderPart(w.input.value, sc)
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
