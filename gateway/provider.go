package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/retry"
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
	upstream   upstream
	keys       *keyPool
	budgets    *budgets
	transports transports
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

// isOpen reports whether neither an operator's override nor the gate keeps the request
// from the provider.
func (p *provider) isOpen(r *request) bool {
	if !p.override.isOpenTo(r.began) {
		return false
	}
	found, _ := p.upstream.gate.state()
	return found != gateClosed
}

// ready reports whether the provider would take the request at once, as far as its
// override, gate and keys are concerned: its limits may still make the request wait.
func (p *provider) ready(r *request) bool {
	_, next := p.keys.waitLeft(r.scope())
	return next == 0 && p.isOpen(r)
}

// readyWithRejectedKey reports whether the provider would take the request at once with a
// key that was rejected before.
func (p *provider) readyWithRejectedKey(r *request) bool {
	return p.keys.onlyRejected(r.scope()) && p.isOpen(r)
}

// blockedBecause returns in a few words why requests are not sent to the provider.
func (p *provider) blockedBecause(began time.Time, s scope) string {
	switch {
	case p.override.get() == openedByHand:
		return "blocked by an operator"
	case !p.override.isOpenTo(began):
		return "draining"
	}
	if _, next := p.keys.waitLeft(s); next > 0 {
		why := p.keys.blockReasons(s)
		return why.brief()
	}
	return "down"
}

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
		ev.Kind, ev.Note = retry.BreakerOpened, "by an operator"
	case breaker.ForcedClosed:
		ev.Kind, ev.Note = retry.BreakerClosed, "by an operator"
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
		p.upstream.gate.breaker.Reset()
	}
}

// recovered does what follows when the gate is open again.
func (p *provider) recovered() {
	if o, was := p.upstream.gate.reopened(); was {
		p.stats.outages.Add(1)
		p.gateway.recovery.touch()
		after := fmt.Sprintf("%.1fs", o.Seconds)
		if o.AtLeast {
			after = "at least " + after
		}
		p.gateway.log.Info("provider recovered", "provider", p.spec.Name, "after", after, "probes", o.Probes)
	}
}

// observe counts and publishes the events of the provider's requests.
func (p *provider) observe(ev retry.Event) {
	switch ev.Kind {
	case retry.AttemptStarted:
		return
	case retry.Succeeded:
		if ev.Attempt < 2 {
			return // a success at once is no event
		}
	case retry.Waiting:
		if ev.Delay == 0 && ev.By == retry.BySchedule {
			p.stats.retries.add("at-once", 1)
			return // no wait; a failover has an event of its own
		}
		p.stats.retries.add(ev.By.String(), 1)
		p.stats.waits.add(ev.By.String(), ev.Delay.Seconds())
	case retry.HedgeStarted:
		p.stats.hedges.Add(1)
	default:
	}
	p.gateway.emit(ev)
}

// applyAccounts holds keys whose accounts are limited.
func (p *provider) applyAccounts() {
	for _, k := range p.keys.keys {
		if k.account != nil {
			p.applyAccount(k.account)
		}
	}
}

// applyAccount holds the keys of the account, or lets them go.
func (p *provider) applyAccount(account *sharedAccount) {
	if p.keys.applyAccount(account, p.spec.Name) {
		p.upstream.subscribers.wake(reopened)
	}
}

// control applies what an operator has set.
func (p *provider) control(m mode) error {
	p.override.set(m, time.Now())
	err := p.override.apply(p.upstream.gate.breaker)
	if m == heldByHand {
		p.upstream.gate.gate.Open()
		p.recovered()
	}
	if m == heldByHand || m == automatic {
		p.keys.reset()
	}
	if m == automatic {
		p.upstream.gate.probeNow()
		p.upstream.subscribers.wake(reopened) // not those at its own gate, one of whom probes now
		return err
	}
	p.upstream.subscribers.wake(overridden)
	return err
}

// The errors of [Gateway.Control], for errors.Is.
var (
	ErrUnknownProvider = errors.New("no such provider")
	ErrUnknownAction   = errors.New("no such action")
)

// The actions of [Gateway.Control]. They are named after what happens to the circuit breaker
// of the provider.
const (
	Open  = "open"  // send no request to the provider, until another action
	Close = "close" // treat it as up even if it fails
	Drain = "drain" // finish requests in progress; new ones go to a fallback or are rejected
	Reset = "reset" // back to automatic: forget what is known of its keys; if it is down, the next request is a probe
)

// Actions are all actions.
var Actions = []string{Open, Close, Drain, Reset}
