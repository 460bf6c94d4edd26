package steps

import (
	"fmt"
	"maps"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

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
