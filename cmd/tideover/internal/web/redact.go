package web

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

// redactor returns a text without the secrets in it.
type redactor func(string) string

// changed returns a copy of the list, after calling change for each element of the copy.
func changed[T any](list []T, change func(*T)) []T {
	list = slices.Clone(list)
	for i := range list {
		change(&list[i])
	}
	return list
}

// changedCopy returns a copy of *p, after calling change for the copy; nil for nil.
func changedCopy[T any](p *T, change func(*T)) *T {
	if p == nil {
		return nil
	}
	c := *p
	change(&c)
	return &c
}

// roundToSecond returns the time rounded to a full second; nil for nil.
func roundToSecond(t *time.Time) *time.Time {
	return changedCopy(t, func(t *time.Time) { *t = t.Round(time.Second) })
}

// run removes secrets from all texts of a run that come from users and programs. Ids and names
// stay: they come from the engine or the configuration.
func (redact redactor) run(i *engine.Info) *engine.Info {
	c := *i
	c.Key, c.Source, c.Error, c.Status = redact(i.Key), redact(i.Source), redact(i.Error), redact(i.Status)
	c.Tags = maps.Clone(i.Tags)
	for name, value := range c.Tags {
		c.Tags[name] = redact(value)
	}
	c.WorkflowPaused = changedCopy(i.WorkflowPaused, func(p *engine.PausedWorkflow) { p.By = redact(p.By) })
	c.InputPreview, c.OutputPreview = redact(i.InputPreview), redact(i.OutputPreview)
	c.Input, c.Output = redact.json(i.Input), redact.json(i.Output)
	c.Steps = changed(i.Steps, func(s *engine.StepInfo) {
		s.Error, s.Item = redact(s.Error), redact(s.Item)
		s.Output, s.Progress, s.Attempts = redact.json(s.Output), redact.json(s.Progress), changed(s.Attempts, redact.attempt)
		s.Question = changedCopy(s.Question, redact.question)
	})
	c.Notes = changed(i.Notes, func(n *engine.Note) { n.Text = redact(n.Text) })
	return &c
}

func (redact redactor) attempt(a *engine.AttemptInfo) {
	a.Error = redact(a.Error)
	a.Wait = changedCopy(a.Wait, func(w *engine.WaitInfo) { w.Woken = redact(w.Woken) })
}

func (redact redactor) question(q *engine.Question) {
	q.Text, q.Default = redact(q.Text), redact(q.Default)
	q.Choices = changed(q.Choices, func(c *string) { *c = redact(*c) })
}

func (redact redactor) json(text json.RawMessage) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(redact(string(text)))
}

// provider removes secrets from the state of a provider. It also rounds times, which the gateway
// computes slightly differently at each call: a page must not be sent again because of that.
func (redact redactor) provider(st gateway.Status) gateway.Status {
	st.Since = roundToSecond(st.Since)
	st.Recovery = changedCopy(st.Recovery, func(r *gateway.Recovery) {
		r.Next, r.Expected = roundToSecond(r.Next), roundToSecond(r.Expected)
	})
	st.BaseURL, st.Why = redact(st.BaseURL), redact(st.Why)
	st.Keys = changed(st.Keys, func(k *gateway.KeyInfo) { k.Reason = redact(k.Reason) })
	st.Outages = changed(st.Outages, func(o *gateway.Outage) { o.Cause = redact(o.Cause) })
	st.Failovers = changed(st.Failovers, func(f *gateway.Failover) { f.Why = redact(f.Why) })
	st.Quotas = changed(st.Quotas, func(q *gateway.Quota) { q.Name = redact(q.Name) })
	st.Budgets = changed(st.Budgets, func(b *gateway.Budget) { b.Route = redact(b.Route) })
	st.Throttles = changed(st.Throttles, func(x *gateway.Throttle) {
		x.Route, x.Model, x.Reason = redact(x.Route), redact(x.Model), redact(x.Reason)
		x.Until, x.NextProbe = x.Until.Round(time.Second), x.NextProbe.Round(time.Second)
	})
	return st
}

// request removes secrets from the record of a request of the gateway.
func (redact redactor) request(r gateway.RequestInfo) gateway.RequestInfo {
	r.Route, r.Model, r.Error = redact(r.Route), redact(r.Model), redact(r.Error)
	r.Steps = changed(r.Steps, func(s *gateway.RequestStep) { s.Why = redact(s.Why) })
	return r
}

// session removes secrets from the state of a session.
func (redact redactor) session(s session.Status) session.Status {
	s.WaitFor, s.Error, s.NoResume, s.AccountLimit = redact(s.WaitFor), redact(s.Error), redact(s.NoResume), redact(s.AccountLimit)
	s.Last = changedCopy(s.Last, func(last *session.Stop) { last.Line = redact(last.Line) })
	s.Limit = changedCopy(s.Limit, func(limit *session.ScreenLimit) { limit.Line = redact(limit.Line) })
	s.Turns = changed(s.Turns, func(t *session.Turn) { t.Line = redact(t.Line) })
	s.Tail = changed(s.Tail, func(line *string) { *line = redact(*line) })
	return s
}
