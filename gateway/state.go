package gateway

import (
	"cmp"
	"slices"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/limit"
)

// Status returns where all providers are, in the order of the configuration.
func (g *Gateway) Status() []Status {
	t := g.table.Load()
	list := make([]Status, 0, len(t.names))
	for _, name := range t.names {
		list = append(list, t.providers[name].status())
	}
	return list
}

// status returns where the provider is.
func (p *provider) status() Status {
	now := time.Now()
	gate := p.gate.gate.Stats()
	st := Status{
		Name: p.spec.Name, Preset: p.spec.Preset, Format: p.spec.Format, BaseURL: shown(p.spec.BaseURL),
		Policy: p.spec.Policy.String(), Fallback: append([]string{}, p.spec.Fallback...),
		Breaker:  p.gate.breaker.State().String(),
		InFlight: int(p.inFlight.Load()),
		Totals:   p.stats.totals(),
		TTFB:     p.pace.mean(), Pressure: p.errors.Pressure(),
		Rate: p.limitsNow(), Quotas: p.quotas.list(now, p.keys.keys), Budgets: p.budgets.list(),
	}
	st.Outages, st.Failovers = p.history.lists()
	var refused, throttled time.Time
	var blocked scope
	st.Keys, refused = p.keys.info(now)
	st.Throttles, blocked, throttled = p.keys.throttled(now, p.gateway.redact)
	st.Waiting, st.ByClass = p.waitingNow(&gate)
	var since time.Time
	if st.State, since = p.state(&gate, refused, throttled, now); !since.IsZero() {
		st.Since = &since
	}
	switch st.State {
	case Throttled:
		if i := slices.IndexFunc(st.Throttles, func(x Throttle) bool { return x.Account != "" }); blocked == (scope{}) && i >= 0 {
			st.Why = "its keys wait: " + st.Throttles[i].Reason
			break
		}
		why := p.keys.blockReasons(blocked)
		st.Why = blocked.String() + ": its keys were " + cmp.Or(why.String(), "told to wait")
	case Refused:
		if why := p.keys.blockReasons(scope{}); len(why.rejected) > 0 {
			st.Why = "its keys were " + why.String()
		}
	}
	st.Held = p.override.get() == heldByHand
	if gate.State == health.GateClosed {
		st.Recovery = p.expected(&gate, now)
	}
	return st
}

// state returns the worst that can be said, and since when it is so.
func (p *provider) state(gate *health.GateStats, refused, throttled, now time.Time) (string, time.Time) {
	switch m, since := p.override.current(); m {
	case openedByHand:
		return Opened, since
	case draining:
		return Draining, since
	default:
	}
	switch {
	case gate.State == health.GateClosed && gate.Probing:
		return Probing, now.Add(-gate.Since)
	case gate.State == health.GateClosed:
		return Down, now.Add(-gate.Since)
	case gate.State == health.GateReleasing:
		if o, ok := p.history.last(); ok {
			return Recovering, o.Ended
		}
		return Recovering, now
	case !refused.IsZero():
		return Refused, refused
	case !throttled.IsZero():
		return Throttled, throttled
	}
	return Up, time.Time{}
}

// expected returns what is expected of the outage.
func (p *provider) expected(gate *health.GateStats, now time.Time) *Recovery {
	r := &Recovery{Probes: gate.Failed, Outages: p.gate.learned()}
	if o, ok := p.history.now(); ok {
		r.Predicted = o.Predicted
	}
	if !gate.Probing {
		at := now.Add(gate.Next)
		if r.Due = gate.Next <= 0 || p.gate.probeRequested.Load(); r.Due {
			at = now
		}
		r.Next = &at
	}
	if left := p.gate.expected(gate); left > 0 {
		at := now.Add(left)
		r.Expected = &at
	}
	return r
}

// limitsNow returns what is allowed, nil if nothing limits it.
func (p *provider) limitsNow() *Limits {
	l := Limits{Concurrent: p.spec.Concurrent}
	if p.rate != nil {
		l.PerSecond = float64(p.spec.Rate.Events) / p.spec.Rate.Per.Seconds()
	}
	if p.send != nil {
		if s := p.send.Stats(); s.Limited && (l.PerSecond == 0 || s.Rate < l.PerSecond) {
			l.PerSecond, l.Adaptive = s.Rate, true
		}
	}
	if l == (Limits{}) && !p.spec.Adaptive {
		return nil
	}
	return &l
}

// waitingNow returns how many requests wait, for any reason.
func (p *provider) waitingNow(gate *health.GateStats) (sum int, byClass map[string]int) {
	counts := gate.ByClass
	if p.slots != nil {
		for i, n := range p.slots.Stats().ByClass {
			counts[i] += n
		}
	}
	if p.rate != nil {
		for i, n := range p.rate.Stats().ByClass {
			counts[i] += n
		}
	}
	byClass = make(map[string]int, limit.Classes)
	for i := range counts {
		counts[i] += int(p.waiting[i].Load())
		sum += counts[i]
		byClass[(limit.Lowest + limit.Priority(i)).String()] = counts[i]
	}
	return sum, byClass
}

func (s *stats) totals() Totals {
	n := Totals{
		Requests: s.requests.Load(), Attempts: s.attempts.Load(), Sent: s.sent.Load(), Retries: uint64(s.retries.total()),
		Succeeded: s.succeeded.Load(), Failed: s.failed.Load(), Canceled: s.canceled.Load(), Throttled: s.throttled.Load(),
		Failovers: s.failovers.Load(), Probes: s.probes.Load(), Hedges: s.hedges.Load(),
		CutShort: s.cutShort.Load(), NotKept: s.notKept.Load(),
	}
	if n.Requests > 0 {
		n.Amplified = float64(n.Sent) / float64(n.Requests)
	}
	return n
}

// Names returns the names of the providers, sorted.
func (g *Gateway) Names() []string { return slices.Sorted(slices.Values(g.table.Load().names)) }
