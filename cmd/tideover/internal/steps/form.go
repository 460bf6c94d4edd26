package steps

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// Form has the parts of a step that a durable function of Go has as code: conditions, loops, waits,
// questions, children and undos. A workflow with such a step runs as a flow of the engine.
type Form struct {
	When     *template.Text // the step is skipped if the condition is false; nil means that there is none
	ForEach  any            // the list of a loop: a *template.Text whose value is a list, or a []any with texts as in an input; nil for none
	Parallel int            // most items of ForEach at the same time; 0 means the engine's default
	Sleep    *template.Text // how long the step waits
	WaitFor  *WaitFor
	Approve  *Approve
	Workflow string // name of the workflow that the step starts as a child
	Input    any    // input of the child: a JSON value whose texts are *template.Text; nil means none
	Undo     *Step  // the command or request that undoes the step; nil for none
}

// WaitFor is a wait for a signal.
type WaitFor struct {
	Event    string        // name of the signal
	Timeout  time.Duration // 0 means none
	Continue bool          // the run continues if no signal comes in time; otherwise it fails
}

// Approve is a question to a person.
type Approve struct {
	Question *template.Text
	Choices  []string // none means approve and reject
	Who      []string // names of those who may answer; none means everyone who may change runs
	Timeout  time.Duration
	Default  string // the answer if nobody answers in time; "" means that the step fails then
	Continue bool   // the run continues if the answer is reject; otherwise it fails
}

// IsFlow reports whether the workflow runs as a flow of the engine, because a step needs that.
func (w *Workflow) IsFlow() bool {
	for _, s := range w.Steps {
		if s.When != nil || s.ForEach != nil || s.Undo != nil || !s.isAction() {
			return true
		}
	}
	return false
}

// storedForm is the stored JSON of a Form. Fields may be added but not changed.
type storedForm struct {
	When     *string        `json:"when,omitempty"`
	ForEach  any            `json:"for_each,omitempty"`
	Parallel int            `json:"parallel,omitempty"`
	Sleep    *string        `json:"sleep,omitempty"`
	WaitFor  *storedWaitFor `json:"wait_for,omitempty"`
	Approve  *storedApprove `json:"approve,omitempty"`
	Workflow string         `json:"workflow,omitempty"`
	Input    any            `json:"input,omitempty"`
	Undo     *Step          `json:"undo,omitempty"`
}

type storedWaitFor struct {
	Event    string        `json:"event"`
	Timeout  time.Duration `json:"timeout_ns,omitempty"`
	Continue bool          `json:"continue,omitempty"`
}

type storedApprove struct {
	Question *string       `json:"question"`
	Choices  []string      `json:"choices,omitempty"`
	Who      []string      `json:"who,omitempty"`
	Timeout  time.Duration `json:"timeout_ns,omitempty"`
	Default  string        `json:"default,omitempty"`
	Continue bool          `json:"continue,omitempty"`
}

func (f *Form) stored() storedForm {
	st := storedForm{
		When: source(f.When), ForEach: sourceTree(f.ForEach), Parallel: f.Parallel, Sleep: source(f.Sleep),
		Workflow: f.Workflow, Input: sourceTree(f.Input), Undo: f.Undo,
	}
	if w := f.WaitFor; w != nil {
		st.WaitFor = (*storedWaitFor)(w)
	}
	if a := f.Approve; a != nil {
		st.Approve = &storedApprove{source(a.Question), a.Choices, a.Who, a.Timeout, a.Default, a.Continue}
	}
	return st
}

// sourceTree returns a JSON value with the sources of its texts.
func sourceTree(v any) any {
	switch v := v.(type) {
	case *template.Text:
		return v.Source()
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = sourceTree(e)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = sourceTree(e)
		}
		return list
	default:
		return v
	}
}

func (p *storedTexts) form(st *storedForm) Form {
	f := Form{
		When: p.text("when", st.When, template.WithoutRefs), ForEach: p.tree("for-each", st.ForEach), Parallel: st.Parallel,
		Sleep: p.text("sleep", st.Sleep, template.WithoutRefs), WaitFor: (*WaitFor)(st.WaitFor),
		Workflow: st.Workflow, Input: p.tree("input", st.Input), Undo: st.Undo,
	}
	if a := st.Approve; a != nil {
		f.Approve = &Approve{p.text("approve", a.Question, template.WithoutRefs), a.Choices, a.Who, a.Timeout, a.Default, a.Continue}
	}
	return f
}

// tree parses the texts of a JSON value.
func (p *storedTexts) tree(name string, v any) any {
	switch v := v.(type) {
	case string:
		return p.text(name, &v, template.WithoutRefs)
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = p.tree(name+"."+k, e)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = p.tree(name+"["+strconv.Itoa(i)+"]", e)
		}
		return list
	default:
		return v
	}
}

// flowSpec is the definition of a flow, as it is stored with its runs.
type flowSpec struct {
	Steps   []*Step        `json:"steps"`
	MaxLost map[string]int `json:"max_lost"` // by step
}

func newFlowSpec(w *Workflow) *flowSpec {
	spec := &flowSpec{Steps: w.Steps, MaxLost: map[string]int{}}
	for _, s := range w.Steps {
		if s.isAction() {
			spec.MaxLost[s.ID] = s.MaxLost
		}
	}
	return spec
}

// parseFlowSpec decodes a stored definition.
func parseFlowSpec(text json.RawMessage) (*flowSpec, error) {
	spec := new(flowSpec)
	if err := json.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("the stored steps of the run: %w", err)
	}
	for _, s := range spec.Steps {
		s.MaxLost = spec.MaxLost[s.ID] // also of its undo, which has the options of the operation
	}
	return spec, nil
}
