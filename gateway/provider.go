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

// title is the provider's name in events.
func (p *provider) title() string { return EventPrefix + p.spec.Name }

// shown returns an address as it may be shown: without credentials and query.
func shown(u *url.URL) string {
	if u == nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// breakerChanged publishes a change of the breaker. It publishes nothing if the breaker
// lets all requests pass before and after the change.
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
