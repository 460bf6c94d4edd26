package gateway

import (
	"cmp"
	"slices"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/limit"
)

// The states of a provider, from good to bad.
const (
	Up         = "up"         // all requests pass
	Throttled  = "throttled"  // requests of a route or model have to wait, with all keys that were not rejected
	Refused    = "refused"    // all its keys were rejected; it is used only if no other provider can take a request
	Recovering = "recovering" // waiting requests are sent one after the other
	Probing    = "probing"    // one request probes, the others wait
	Down       = "down"       // no request is sent until the next probe
	Opened     = "opened"     // no request is sent, because an operator opened the breaker
	Draining   = "draining"   // requests in progress finish; new ones go to a fallback or are rejected
)

// States lists all states.
var States = []string{Up, Throttled, Refused, Recovering, Probing, Down, Opened, Draining}

// Status is the state of a provider at one moment. Its JSON is part of the HTTP API of
// tideover serve.
type Status struct {
	Name     string   `json:"name"`
	Preset   string   `json:"preset"`
	Format   string   `json:"format"`
	BaseURL  string   `json:"base_url"` // without credentials
	Policy   string   `json:"policy"`
	Fallback []string `json:"fallback"`

	State   string     `json:"state"`
	Why     string     `json:"why,omitempty"`   // why it is throttled or refused, such as "its keys were rejected (401)" or "POST /v1/messages, model m: its keys were throttled (429)"
	Held    bool       `json:"held,omitempty"`  // an operator's action makes it count as up even if it fails
	Since   *time.Time `json:"since,omitempty"` // when the current state began; nil for up
	Breaker string     `json:"breaker"`         // closed, open, half-open, forced-open, forced-closed

	InFlight int            `json:"in_flight"`
	Waiting  int            `json:"waiting"`          // requests that wait for a limit, a key or recovery
	ByClass  map[string]int `json:"waiting_by_class"` // the same by priority

	Totals   Totals    `json:"totals"`
	TTFB     float64   `json:"ttfb_seconds"`   // mean time to first byte of recent successes
	Pressure float64   `json:"error_pressure"` // 0 if at least half of the recent attempts succeed, higher if fewer do; lengthens delays
	Rate     *Limits   `json:"rate,omitempty"`
	Keys     []KeyInfo `json:"keys"`

	Throttles []Throttle `json:"throttles"` // current waits, by key, route and model

	Recovery  *Recovery  `json:"recovery,omitempty"` // set while it is down
	Outages   []Outage   `json:"outages"`            // recent outages, newest first
	Failovers []Failover `json:"failovers"`          // recent failovers, newest first
	Quotas    []Quota    `json:"quotas"`             // limits that its latest answers stated
	Budgets   []Budget   `json:"budgets"`            // rest of the retry budgets, by route
}

// Totals are counts since the start of the gateway.
type Totals struct {
	Requests  uint64  `json:"requests"` // requests of callers
	Attempts  uint64  `json:"attempts"` // attempts sent to this provider, for its own requests and as a fallback
	Sent      uint64  `json:"sent"`     // attempts for its own requests, at this provider and at fallbacks
	Retries   uint64  `json:"retries"`
	Succeeded uint64  `json:"succeeded"`
	Failed    uint64  `json:"failed"`        // requests that got an error of the gateway or the last failure
	Canceled  uint64  `json:"canceled"`      // requests whose caller disconnected
	Throttled uint64  `json:"throttled"`     // answers with status 429
	Failovers uint64  `json:"failovers"`     // moves of its own requests to another provider
	Probes    uint64  `json:"probes"`        // attempts that tested whether it is back
	Hedges    uint64  `json:"hedges"`        // second attempts beside a slow one
	CutShort  uint64  `json:"cut_short"`     // answers that broke off after the caller had got a part
	NotKept   uint64  `json:"not_kept"`      // request bodies too long to be stored and sent again
	Amplified float64 `json:"amplification"` // Sent divided by Requests
}

// Limits are the limits that apply now.
type Limits struct {
	PerSecond  float64 `json:"per_second,omitempty"` // 0 means no limit
	Adaptive   bool    `json:"adaptive,omitempty"`   // the rate was learned, not configured
	Concurrent int     `json:"concurrent,omitempty"`
}

// KeyInfo is the state of a key.
type KeyInfo struct {
	Name      string     `json:"name"`
	Account   string     `json:"account,omitempty"` // account whose limit it shares
	InFlight  int        `json:"in_flight"`
	CoolUntil *time.Time `json:"cool_until,omitempty"` // end of the time in which it is avoided because it was rejected; waits that the server asks for are in Throttles
	Refused   bool       `json:"refused,omitempty"`    // until CoolUntil it is used only if nothing else can take a request
	Reason    string     `json:"reason,omitempty"`     // status with which it was rejected, such as "401" or "429 insufficient_quota"
	Failures  int        `json:"failures"`             // in a row
	Score     float64    `json:"score"`                // cost of using the key, in seconds; the lowest is preferred
}

// Throttle is a wait that a provider asked for: requests of this route
// for this model are not sent with this key. A wait of an account applies to all requests
// with the key.
type Throttle struct {
	Key       string    `json:"key"`
	Account   string    `json:"account,omitempty"` // limited account, if the wait is one of an account; no request is sent with the key
	Route     string    `json:"route"`             // "" for a wait of an account
	Model     string    `json:"model,omitempty"`   // "" if requests of the route name no model
	Reason    string    `json:"reason"`            // such as "429"
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"`      // end that the provider stated
	NextProbe time.Time `json:"next_probe"` // when one request may test whether the wait is over; not before Until if an account states its reset
}

// Recovery is the estimate of the end of an outage.
type Recovery struct {
	Next     *time.Time `json:"next_probe,omitempty"`
	Due      bool       `json:"due,omitempty"`      // the next request is a probe
	Expected *time.Time `json:"expected,omitempty"` // median of the estimate, given how long the outage has lasted; nil if no outage is known
	Probes   int        `json:"probes"`             // failed probes so far
	Outages  float64    `json:"learned_from"`       // number of outages that the estimate is based on

	// Predicted is the duration that was predicted when the outage began; 0 means that
	// there was no prediction. It is also in the list of outages when the outage has
	// ended.
	Predicted float64 `json:"predicted_seconds,omitempty"`
}

// Outage is an outage that is over.
type Outage struct {
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
	Seconds   float64   `json:"seconds"`
	AtLeast   bool      `json:"at_least,omitempty"` // Seconds ends at the last failure: there was no request for long, so the true end is unknown
	Predicted float64   `json:"predicted_seconds"`  // duration that was predicted when it began; 0 if there was no prediction
	Probes    int       `json:"probes"`
	Cause     string    `json:"cause"` // why the breaker opened, such as "consecutive"
}

// Failover is a move of a request to another provider.
type Failover struct {
	Time time.Time `json:"time"`
	From string    `json:"from"`
	To   string    `json:"to"`
	Why  string    `json:"why"` // such as "503", "down", "429 on all keys"
}

// Quota is a limit that the provider states in its responses.
type Quota struct {
	Name      string     `json:"name"` // such as "requests" or "input-tokens"
	Key       string     `json:"key"`  // key to which the limit applies
	Limit     int64      `json:"limit,omitempty"`
	Remaining int64      `json:"remaining"`
	Reset     *time.Time `json:"reset,omitempty"`
}

// Budget is the rest of the retry budget of a route.
type Budget struct {
	Route  string  `json:"route"`
	Tokens float64 `json:"tokens"`
	Max    float64 `json:"max"`
}

// Status returns the state of all providers, in the order of the configuration.
func (g *Gateway) Status() []Status {
	t := g.table.Load()
	list := make([]Status, 0, len(t.names))
	for _, name := range t.names {
		list = append(list, t.providers[name].status())
	}
	return list
}

// Requests returns the kept requests that the filter selects, newest first. The gateway keeps
// the latest requests that failed, waited, or moved to another key or provider, the latest that
// it rejected before any attempt, and a sample of those that succeeded at once; see
// [Options].KeepRequests. They are in memory: a restart loses them.
func (g *Gateway) Requests(f RequestFilter) []RequestInfo {
	list := []RequestInfo{}
	for _, r := range g.records.all() {
		if f.matches(&r) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b RequestInfo) int { return cmp.Compare(b.number, a.number) })
	if f.Limit > 0 && len(list) > f.Limit {
		list = slices.Clip(list[:f.Limit])
	}
	return list
}

// Request returns the request with this id. It returns false if the gateway has not kept it.
func (g *Gateway) Request(call uint64) (RequestInfo, bool) {
	if r := g.records.find(call); r != nil {
		return r.info(), true
	}
	for i := range g.records.rings {
		if r := g.records.rings[i].find(call); r != nil {
			return *r, true
		}
	}
	return RequestInfo{}, false
}

// status returns the state of the provider.
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
	keys, rejected := p.keys.info(now)
	throttles, blocked, throttled := p.keys.throttled(now, p.gateway.redact)
	st.Keys, st.Throttles = keys, throttles
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

// state returns the worst state that applies, and since when. rejected and throttled are
// the times since when all keys are rejected or throttled; zero means that they are not.
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

// expected returns the estimate of the end of the current outage.
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
		r.Expected = new(now.Add(left))
	}
	return r
}

// limits returns the limits that apply, or nil if there are none.
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

// waitingNow returns how many requests wait, for any reason, in all and by priority.
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
		Requests: s.requests.Load(), Attempts: s.attempts.Load(), Sent: s.sent.Load(),
		Succeeded: s.succeeded.Load(), Failed: s.failed.Load(), Canceled: s.canceled.Load(), Throttled: s.throttled.Load(),
		Failovers: s.failovers.Load(), Probes: s.probes.Load(), Hedges: s.hedges.Load(),
		CutShort: s.cutShort.Load(), NotKept: s.notKept.Load(),
	}
	for _, count := range s.retries.all() {
		n.Retries += uint64(count)
	}
	if n.Requests > 0 {
		n.Amplified = float64(n.Sent) / float64(n.Requests)
	}
	return n
}

// Names returns the names of the providers, sorted.
func (g *Gateway) Names() []string { return slices.Sorted(slices.Values(g.table.Load().names)) }

// Stats returns the counts and the state of all providers.
func (g *Gateway) Stats() Stats {
	t := g.table.Load()
	s := Stats{Failovers: t.failovers(), Providers: make([]ProviderStats, 0, len(t.names))}
	for _, name := range t.names {
		s.Providers = append(s.Providers, t.providers[name].publicStats())
	}
	return s
}

// publicStats returns the counts and the state of the provider.
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

// Loads returns the numbers of requests and attempts of each provider, by name.
func (g *Gateway) Loads() map[string]Load {
	t := g.table.Load()
	loads := make(map[string]Load, len(t.names))
	for name, p := range t.providers {
		loads[name] = Load{p.stats.requests.Load(), p.stats.sent.Load()}
	}
	return loads
}
