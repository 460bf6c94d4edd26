package gateway

import (
	"cmp"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// provider is a provider as one configuration has it. It never changes: a reload
// makes a new one, which shares with the old all parts that are still right.
// Requests under way finish with the old one.
type provider struct {
	spec    Spec
	gateway *Gateway
	order   []*provider // itself, then its fallbacks

	forward *forwarding // what it is sent as a fallback

	named []string // its name as the value of a header; never changed

	// What belongs to the name.
	stats    *stats
	override *override

	// What belongs to the destination, and to the parts of the configuration that
	// it is made from.
	*upstreamState
	gate    *healthGate
	keys    *keyPool
	slots   *limit.Concurrency // nil means no limit
	rate    *limit.RateQueue   // the same
	send    *health.SendRate   // the same
	budgets *budgets

	plain  *retryhttp.Transport // by the policy, without hedging
	single *retryhttp.Transport // one attempt at each target, without a wait, for callers that retry

	mu     sync.Mutex
	hedged map[string]*retryhttp.Transport // by route
}

// upstreamState is what is known of a destination, however the provider is configured.
type upstreamState struct {
	recovery    *health.Recovery
	history     history
	quotas      rateLimits
	errors      health.ErrorRate
	subscribers subscribers
	pace        pace
	inFlight    atomic.Int64
	waiting     [limit.Classes]atomic.Int64 // for the adaptive rate, or for a key; gate, rate and slots count their own
}

// pace is how long answers take to begin.
type pace struct {
	mu    sync.Mutex
	score health.Score
}

func (p *pace) observe(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.score.ObserveAt(clock.Now(), d)
}

func (p *pace) mean() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.score.MeanAt(clock.Now())
}

// newProvider makes a provider, with all parts of the old one that are still
// right. old may be nil. Nothing of the old one is changed.
func (g *Gateway) newProvider(s Spec, old *provider) (*provider, error) {
	p := &provider{spec: s, gateway: g, named: []string{s.Name}, stats: g.stats[s.Name], override: g.overrides[s.Name]}
	p.stats, p.override = cmp.Or(p.stats, new(stats)), cmp.Or(p.override, new(override))
	p.forward = newForwarding(&s)
	if old != nil && shown(old.spec.BaseURL) != shown(s.BaseURL) {
		old = nil // another destination, of which nothing is known
	}
	if old != nil {
		p.upstreamState = old.upstreamState
	} else {
		p.upstreamState = &upstreamState{recovery: g.recovery.recovery(s.Name, shown(s.BaseURL))}
	}
	var err error
	if p.keys, err = newKeyPool(&s, p.stats, g.account); err != nil {
		return nil, err
	}
	if old != nil && p.keys.same(old.keys) {
		p.keys = old.keys
	} else if old != nil {
		p.keys.inherit(old.keys)
	}
	if err := p.makeGate(old); err != nil {
		return nil, err
	}
	return p, p.makeLimits(old)
}

func (p *provider) makeGate(old *provider) (err error) {
	s := &p.spec
	if old != nil && old.spec.Breaker == s.Breaker && old.spec.OpenFor == s.OpenFor && old.spec.Queue == s.Queue {
		p.gate = old.gate
		return nil
	}
	p.gate, err = newHealthGate(s, p.title(), p.recovery, &p.history, &p.subscribers, p.breakerChanged)
	if err == nil {
		err = p.override.apply(p.gate.breaker)
	}
	return err
}

func (p *provider) makeLimits(old *provider) (err error) {
	s := &p.spec
	patience := p.patience()
	if s.Rate != (limit.Frequency{}) {
		if old != nil && old.rate != nil && old.spec.Rate == s.Rate && old.spec.Burst == s.Burst && old.spec.Queue == s.Queue && old.patience() == patience {
			p.rate = old.rate
		} else if p.rate, err = limit.NewRateQueue(limit.RateQueueConfig{Rate: s.Rate, Burst: s.Burst, MaxWait: patience, Queue: s.Queue}); err != nil {
			return err
		}
	}
	if s.Adaptive {
		if old != nil && old.send != nil && old.patience() == patience {
			p.send = old.send
		} else if p.send, err = health.NewSendRate(health.SendRateConfig{MaxWait: patience}); err != nil {
			return err
		}
	}
	if s.Concurrent > 0 {
		if old != nil && old.slots != nil && old.spec.Queue == s.Queue {
			p.slots = old.slots // whose number changes when this provider takes over
		} else if p.slots, err = limit.NewConcurrency(limit.ConcurrencyConfig{Max: s.Concurrent, Queue: s.Queue}); err != nil {
			return err
		}
	}
	spec := s.Policy.Budget
	if spec == (limit.BudgetSpec{}) {
		spec = limit.ProviderBudget()
	}
	if p.budgets = (&budgets{spec: spec, redact: p.gateway.redact}); old != nil && old.budgets.spec == spec {
		p.budgets = old.budgets
	}
	return nil
}

// maxPatience is the longest that a request waits for its turn, when its policy
// sets no limit.
const maxPatience = 10 * time.Minute

// patience returns how long a request may wait for its turn.
func (p *provider) patience() time.Duration {
	return cmp.Or(min(p.spec.Policy.TotalTimeout, 24*time.Hour), maxPatience)
}

// serverWait returns the longest delay stated by a server that is honoured.
func (p *provider) serverWait() time.Duration {
	return cmp.Or(p.spec.Policy.ServerWait, retry.DefaultServerWait)
}

// takeOver does what could not be done before it was clear that the whole
// configuration is right.
func (p *provider) takeOver() error {
	p.gateway.stats[p.spec.Name], p.gateway.overrides[p.spec.Name] = p.stats, p.override
	if p.gate.gate.Stats().State == health.GateOpen {
		p.history.ended(time.Now()) // of a door that is no longer there
	}
	if p.slots != nil {
		return p.slots.SetMax(p.spec.Concurrent)
	}
	return nil
}

// title is the provider's name in events.
func (p *provider) title() string { return EventPrefix + p.spec.Name }

// shown returns an address as it may be shown: without credentials and query.
func shown(u *url.URL) string {
	if u == nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// breakerChanged tells of a change of the breaker. That one which lets everybody
// pass now does so for another reason is no news.
func (p *provider) breakerChanged(e breaker.Event, s health.GateStats) {
	if lets(e.From) && lets(e.To) {
		return
	}
	ev := retry.Event{Time: time.Now(), Name: p.title()}
	switch e.To {
	case breaker.Open:
		ev.Kind, ev.Delay, ev.Note = retry.BreakerOpened, s.Next, string(e.Cause)
	case breaker.ForcedOpen:
		ev.Kind, ev.Note = retry.BreakerOpened, "by hand"
	case breaker.ForcedClosed:
		ev.Kind, ev.Note = retry.BreakerClosed, "by hand"
	case breaker.HalfOpen:
		ev.Kind = retry.BreakerHalfOpen
	case breaker.Closed:
		ev.Kind = retry.BreakerClosed
	}
	if ev.Delay > 0 {
		ev.Until = ev.Time.Add(ev.Delay)
	}
	p.gateway.emit(ev)
}

// lets reports whether a breaker in the state lets all requests pass.
func lets(s breaker.State) bool { return s == breaker.Closed || s == breaker.ForcedClosed }

// forgive makes the breaker forget what it has counted.
func (p *provider) forgive() {
	if m := p.override.get(); m == automatic || m == draining {
		p.gate.breaker.Reset()
	}
}

// recovered does what follows when the gate is open again.
func (p *provider) recovered() {
	if o, was := p.gate.reopened(); was {
		p.stats.outages.Add(1)
		p.gateway.recovery.touch()
		after := fmt.Sprintf("%.1fs", o.Seconds)
		if o.AtLeast {
			after = "at least " + after
		}
		p.gateway.log.Info("provider is back", "provider", p.spec.Name, "after", after, "probes", o.Probes)
	}
}
