package web

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tideover/tideover/engine"
)

// clean takes secrets out of everything about a run that somebody else wrote.
// Ids and names are left: they are made by the engine or stand in the program.
func (h *handler) clean(i *engine.Info) *engine.Info {
	c := *i
	c.Key, c.Source, c.Error = h.Redact(i.Key), h.Redact(i.Source), h.Redact(i.Error)
	c.InputPreview, c.OutputPreview = h.Redact(i.InputPreview), h.Redact(i.OutputPreview)
	c.Input, c.Output = h.cleanJSON(i.Input), h.cleanJSON(i.Output)
	c.Steps, c.Notes = slices.Clone(i.Steps), slices.Clone(i.Notes)
	for k := range c.Steps {
		s := &c.Steps[k]
		s.Output, s.Progress, s.Attempts = h.cleanJSON(s.Output), h.cleanJSON(s.Progress), slices.Clone(s.Attempts)
		for n := range s.Attempts {
			a := &s.Attempts[n]
			a.Error = h.Redact(a.Error)
			if a.Wait != nil {
				w := *a.Wait
				w.Woken = h.Redact(w.Woken)
				a.Wait = &w
			}
		}
	}
	for k := range c.Notes {
		c.Notes[k].Text = h.Redact(c.Notes[k].Text)
	}
	return &c
}

func (h *handler) cleanJSON(text json.RawMessage) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(h.Redact(string(text)))
}

// get returns a run without secrets.
func (h *handler) get(ctx context.Context, id string) (*engine.Info, error) {
	i, err := h.Engine.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return h.clean(i), nil
}
