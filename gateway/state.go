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
	u := &p.upstream
	gate := u.gate.gate.Stats()
	st := Status{
		Name: p.spec.Name, Preset: p.spec.Preset, Format: p.spec.Format, BaseURL: shown(p.spec.BaseURL),
		Policy: p.spec.Policy.String(), Fallback: append([]string{}, p.spec.Fallback...),
		Breaker:  u.gate.breaker.State().String(),
		InFlight: int(u.inFlight.Load()),
		Totals:   p.stats.totals(),
		TTFB:     u.pace.mean(), Pressure: u.errors.Pressure(),
		Rate: u.limits(&p.spec), Quotas: u.rateLimits.list(now, p.keys.keys), Budgets: p.budgets.list(),
	}
	st.Outages, st.Failovers = u.history.lists()
	var rejected, throttled time.Time
	var blocked scope
	st.Keys, rejected = p.keys.info(now)
	st.Throttles, blocked, throttled = p.keys.throttled(now, p.gateway.redact)
	st.Waiting, st.ByClass = u.waitingNow(&gate)
	var since time.Time
	if st.State, since = p.state(&gate, rejected, throttled, now); !since.IsZero() {
		st.Since = &since
	}
	switch st.State {
	case Throttled:
		if i := slices.IndexFunc(st.Throttles, func(x Throttle) bool { return x.Account != "" }); blocked == (scope{}) && i >= 0 {
			st.Why = "its keys wait: " + st.Throttles[i].Reason
			break
		}
		why := p.keys.blockReasons(blocked)
		st.Why = blocked.String() + ": its keys were " + cmp.Or(why.String(), "throttled")
	case Refused:
		if why := p.keys.blockReasons(scope{}); len(why.rejected) > 0 {
			st.Why = "its keys were " + why.String()
		}
	}
	st.Held = p.override.get() == heldByHand
	if gate.State == health.GateClosed {
		st.Recovery = u.expected(&gate, now)
	}
	return st
}

// state returns the worst that can be said, and since when it is so.
func (p *provider) state(gate *health.GateStats, rejected, throttled, now time.Time) (string, time.Time) {
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
		if o, ok := p.upstream.history.last(); ok {
			return Recovering, o.Ended
		}
		return Recovering, now
	case !rejected.IsZero():
		return Refused, rejected
	case !throttled.IsZero():
		return Throttled, throttled
	}
	return Up, time.Time{}
}

// expected returns what is expected of the outage.
func (u *upstream) expected(gate *health.GateStats, now time.Time) *Recovery {
	r := &Recovery{Probes: gate.Failed, Outages: u.gate.learned()}
	if o, ok := u.history.now(); ok {
		r.Predicted = o.Predicted
	}
	if !gate.Probing {
		at := now.Add(gate.Next)
		if r.Due = gate.Next <= 0 || u.gate.probeRequested.Load(); r.Due {
			at = now
		}
		r.Next = &at
	}
	if left := u.gate.expected(gate); left > 0 {
		at := now.Add(left)
		r.Expected = &at
	}
	return r
}

// limits returns what is allowed, nil if nothing limits it.
func (u *upstream) limits(spec *Spec) *Limits {
	l := Limits{Concurrent: spec.Concurrent}
	if u.rate != nil {
		l.PerSecond = float64(spec.Rate.Events) / spec.Rate.Per.Seconds()
	}
	if u.send != nil {
		if s := u.send.Stats(); s.Limited && (l.PerSecond == 0 || s.Rate < l.PerSecond) {
			l.PerSecond, l.Adaptive = s.Rate, true
		}
	}
	if l == (Limits{}) && !spec.Adaptive {
		return nil
	}
	return &l
}

// waitingNow returns how many requests wait, for any reason.
func (u *upstream) waitingNow(gate *health.GateStats) (sum int, byClass map[string]int) {
	counts := gate.ByClass
	if u.slots != nil {
		for i, n := range u.slots.Stats().ByClass {
			counts[i] += n
		}
	}
	if u.rate != nil {
		for i, n := range u.rate.Stats().ByClass {
			counts[i] += n
		}
	}
	byClass = make(map[string]int, limit.Classes)
	for i := range counts {
		counts[i] += int(u.waiting[i].Load())
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

// Stats returns the numbers of all providers.
func (g *Gateway) Stats() Stats {
	t := g.table.Load()
	s := Stats{Failovers: t.failovers(), Providers: make([]ProviderStats, 0, len(t.names))}
	for _, name := range t.names {
		s.Providers = append(s.Providers, t.providers[name].publicStats())
	}
	return s
}

// publicStats returns the numbers of the provider.
func (p *provider) publicStats() ProviderStats {
	s := ProviderStats{
		Status: p.status(), Outages: p.stats.outages.Load(), Late: p.stats.late.Load(), FirstByte: p.stats.ttfb.snapshot(),
		Retries: p.stats.retries.all(), WaitSeconds: p.stats.waits.all(), GiveUps: p.stats.giveUps.all(),
	}
	for _, k := range p.keys.keys {
		for i := range k.stats.by {
			if n := k.stats.by[i].Load(); n > 0 {
				s.Attempts = append(s.Attempts, AttemptCount{k.name, classes[i], n})
			}
		}
	}
	return s
}

// Loads returns the load of each provider, by name.
func (g *Gateway) Loads() map[string]Load {
	t := g.table.Load()
	loads := make(map[string]Load, len(t.names))
	for name, p := range t.providers {
		loads[name] = Load{p.stats.requests.Load(), p.stats.sent.Load()}
	}
	return loads
}
