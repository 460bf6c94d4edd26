package pages

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/tideover/tideover/engine"
)

// Redactor returns a text without the secrets in it.
type Redactor func(string) string

// Changed returns a copy of the list, after calling change for each element of the copy.
func Changed[T any](list []T, change func(*T)) []T {
	list = slices.Clone(list)
	for i := range list {
		change(&list[i])
	}
	return list
}

// ChangedCopy returns a copy of *p, after calling change for the copy; nil for nil.
func ChangedCopy[T any](p *T, change func(*T)) *T {
	if p == nil {
		return nil
	}
	c := *p
	change(&c)
	return &c
}

// run removes secrets from all texts of a run that come from users and programs. Ids and names
// stay: they come from the engine or the configuration.
func (redact Redactor) run(i *engine.Info) *engine.Info {
	c := *i
	c.Key, c.Source, c.Error, c.Status = redact(i.Key), redact(i.Source), redact(i.Error), redact(i.Status)
	c.Tags = maps.Clone(i.Tags)
	for name, value := range c.Tags {
		c.Tags[name] = redact(value)
	}
	c.WorkflowPaused = ChangedCopy(i.WorkflowPaused, func(p *engine.PausedWorkflow) { p.By = redact(p.By) })
	c.InputPreview, c.OutputPreview = redact(i.InputPreview), redact(i.OutputPreview)
	c.Input, c.Output = redact.json(i.Input), redact.json(i.Output)
	c.Steps = Changed(i.Steps, func(s *engine.StepInfo) {
		s.Error, s.Item = redact(s.Error), redact(s.Item)
		s.Output, s.Progress, s.Attempts = redact.json(s.Output), redact.json(s.Progress), Changed(s.Attempts, redact.attempt)
		s.Question = ChangedCopy(s.Question, redact.question)
	})
	c.Notes = Changed(i.Notes, func(n *engine.Note) { n.Text = redact(n.Text) })
	return &c
}

func (redact Redactor) attempt(a *engine.AttemptInfo) {
	a.Error = redact(a.Error)
	a.Wait = ChangedCopy(a.Wait, func(w *engine.WaitInfo) { w.Woken = redact(w.Woken) })
}

func (redact Redactor) question(q *engine.Question) {
	q.Text, q.Default = redact(q.Text), redact(q.Default)
	q.Choices = Changed(q.Choices, func(c *string) { *c = redact(*c) })
}

func (redact Redactor) json(text json.RawMessage) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(redact(string(text)))
}
