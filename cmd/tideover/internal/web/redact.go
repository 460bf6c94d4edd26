package web

import (
	"encoding/json"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

// redactor removes secrets from a text.
type redactor func(string) string

// run removes secrets from all texts of a run that come from users and programs. Ids and names
// stay: they come from the engine or the configuration.
func (redact redactor) run(i *engine.Info) *engine.Info {
	c := *i
	c.Key, c.Source, c.Error = redact(i.Key), redact(i.Source), redact(i.Error)
	c.InputPreview, c.OutputPreview = redact(i.InputPreview), redact(i.OutputPreview)
	c.Input, c.Output = redact.json(i.Input), redact.json(i.Output)
	c.Steps, c.Notes = slices.Clone(i.Steps), slices.Clone(i.Notes)
	for k := range c.Steps {
		s := &c.Steps[k]
		s.Output, s.Progress, s.Attempts = redact.json(s.Output), redact.json(s.Progress), slices.Clone(s.Attempts)
		for n := range s.Attempts {
			a := &s.Attempts[n]
			a.Error = redact(a.Error)
			if a.Wait != nil {
				w := *a.Wait
				w.Woken = redact(w.Woken)
				a.Wait = &w
			}
		}
	}
	for k := range c.Notes {
		c.Notes[k].Text = redact(c.Notes[k].Text)
	}
	return &c
}

func (redact redactor) json(text json.RawMessage) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(redact(string(text)))
}

// provider removes secrets from the state of a provider. It rounds times that differ a little in
// each call, so that a page is not sent again because of them.
func (redact redactor) provider(st gateway.Status) gateway.Status {
	st.Since = roundToSecond(st.Since)
	if st.Recovery != nil {
		r := *st.Recovery
		r.Next, r.Expected = roundToSecond(r.Next), roundToSecond(r.Expected)
		st.Recovery = &r
	}
	st.BaseURL, st.Why = redact(st.BaseURL), redact(st.Why)
	st.Keys, st.Outages, st.Failovers = slices.Clone(st.Keys), slices.Clone(st.Outages), slices.Clone(st.Failovers)
	st.Quotas, st.Budgets = slices.Clone(st.Quotas), slices.Clone(st.Budgets)
	for i := range st.Keys {
		st.Keys[i].Reason = redact(st.Keys[i].Reason)
	}
	for i := range st.Outages {
		st.Outages[i].Cause = redact(st.Outages[i].Cause)
	}
	for i := range st.Failovers {
		st.Failovers[i].Why = redact(st.Failovers[i].Why)
	}
	for i := range st.Quotas {
		st.Quotas[i].Name = redact(st.Quotas[i].Name)
	}
	for i := range st.Budgets {
		st.Budgets[i].Route = redact(st.Budgets[i].Route)
	}
	st.Throttles = slices.Clone(st.Throttles)
	for i := range st.Throttles {
		x := &st.Throttles[i]
		x.Route, x.Model, x.Reason = redact(x.Route), redact(x.Model), redact(x.Reason)
		x.Until, x.NextProbe = *roundToSecond(&x.Until), *roundToSecond(&x.NextProbe)
	}
	return st
}

// session removes secrets from the state of a session.
func (redact redactor) session(s session.Status) session.Status {
	s.WaitFor, s.Error, s.NoResume, s.AccountLimit = redact(s.WaitFor), redact(s.Error), redact(s.NoResume), redact(s.AccountLimit)
	if s.Last != nil {
		last := *s.Last
		last.Line = redact(last.Line)
		s.Last = &last
	}
	if s.Limit != nil {
		limit := *s.Limit
		limit.Line = redact(limit.Line)
		s.Limit = &limit
	}
	s.Turns = slices.Clone(s.Turns)
	for i := range s.Turns {
		s.Turns[i].Line = redact(s.Turns[i].Line)
	}
	s.Tail = slices.Clone(s.Tail)
	for i := range s.Tail {
		s.Tail[i] = redact(s.Tail[i])
	}
	return s
}
