package web

import (
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/pages"
)

// redactor removes secrets from a text.
type redactor func(string) string

// provider removes secrets from the state of a provider. It also rounds times, which the gateway
// computes slightly differently at each call: a page must not be sent again because of that.
func (redact redactor) provider(st gateway.Status) gateway.Status {
	st.Since = roundToSecond(st.Since)
	st.Recovery = pages.ChangedCopy(st.Recovery, func(r *gateway.Recovery) {
		r.Next, r.Expected = roundToSecond(r.Next), roundToSecond(r.Expected)
	})
	st.BaseURL, st.Why = redact(st.BaseURL), redact(st.Why)
	st.Keys = pages.Changed(st.Keys, func(k *gateway.KeyInfo) { k.Reason = redact(k.Reason) })
	st.Outages = pages.Changed(st.Outages, func(o *gateway.Outage) { o.Cause = redact(o.Cause) })
	st.Failovers = pages.Changed(st.Failovers, func(f *gateway.Failover) { f.Why = redact(f.Why) })
	st.Quotas = pages.Changed(st.Quotas, func(q *gateway.Quota) { q.Name = redact(q.Name) })
	st.Budgets = pages.Changed(st.Budgets, func(b *gateway.Budget) { b.Route = redact(b.Route) })
	st.Throttles = pages.Changed(st.Throttles, func(x *gateway.Throttle) {
		x.Route, x.Model, x.Reason = redact(x.Route), redact(x.Model), redact(x.Reason)
		x.Until, x.NextProbe = x.Until.Round(time.Second), x.NextProbe.Round(time.Second)
	})
	return st
}

// request removes secrets from the record of a request of the gateway.
func (redact redactor) request(r gateway.RequestInfo) gateway.RequestInfo {
	r.Route, r.Model, r.Error = redact(r.Route), redact(r.Model), redact(r.Error)
	r.Steps = pages.Changed(r.Steps, func(s *gateway.RequestStep) { s.Why = redact(s.Why) })
	return r
}

// session removes secrets from the state of a session.
func (redact redactor) session(s session.Status) session.Status {
	s.WaitFor, s.Error, s.NoResume, s.AccountLimit = redact(s.WaitFor), redact(s.Error), redact(s.NoResume), redact(s.AccountLimit)
	s.Last = pages.ChangedCopy(s.Last, func(last *session.Stop) { last.Line = redact(last.Line) })
	s.Limit = pages.ChangedCopy(s.Limit, func(limit *session.ScreenLimit) { limit.Line = redact(limit.Line) })
	s.Turns = pages.Changed(s.Turns, func(t *session.Turn) { t.Line = redact(t.Line) })
	s.Tail = pages.Changed(s.Tail, func(line *string) { *line = redact(*line) })
	return s
}

// roundToSecond returns the time rounded to a full second; nil for nil.
func roundToSecond(t *time.Time) *time.Time {
	return pages.ChangedCopy(t, func(t *time.Time) { *t = t.Round(time.Second) })
}
