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

// provider is a provider of one configuration. It is never changed: a reload
// makes a new one, which shares the parts whose settings are the same.
// Requests in progress finish with the old one.
type provider struct {
	spec    Spec
	gateway *Gateway
	order   []*provider // itself, then its fallbacks

	forward *forwarding // headers and parameters that it gets as a fallback

	named []string // its name as a header value; never changed

	// These belong to the name, and survive reloads.
	stats    *stats
	override *override

	// These survive a reload if the settings that they are made from are the same.
	upstream upstream
	keys     *keyPool
	budgets  *budgets

	transports transports // made anew at each reload
}

// maxPatience is how long a request may wait for its turn if its policy
// sets no limit.
const maxPatience = 10 * time.Minute

// patience returns how long a request may wait for its turn: the total timeout of the
// policy, at most a day.
func (p *provider) patience() time.Duration {
	return cmp.Or(min(p.spec.Policy.TotalTimeout, 24*time.Hour), maxPatience)
}

// serverWait returns the longest delay stated by a server that the policy accepts.
func (p *provider) serverWait() time.Duration {
	return cmp.Or(p.spec.Policy.ServerWait, retry.DefaultServerWait)
}

// title returns the provider's name in events.
func (p *provider) title() string { return EventPrefix + p.spec.Name }

// isOpen reports whether neither an operator's override nor a closed gate blocks the
// request.
func (p *provider) isOpen(r *request) bool {
	if !p.override.isOpenTo(r.began) {
		return false
	}
	found, _ := p.upstream.gate.state()
	return found != gateClosed
}

// ready reports whether the provider can take the request at once, as far as
// override, gate and keys are concerned. Its limits may still make the request wait.
func (p *provider) ready(r *request) bool {
	_, next := p.keys.waitLeft(r.scope())
	return next == 0 && p.isOpen(r)
}

// readyWithRejectedKey reports whether the provider can take the request at once with a
// key that was rejected before.
func (p *provider) readyWithRejectedKey(r *request) bool {
	return p.keys.onlyRejected(r.scope()) && p.isOpen(r)
}

// blockedBecause returns in a few words why the provider can't take a request that began
// at this time.
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

// shown returns a URL without credentials and query, for messages and the status.
func shown(u *url.URL) string {
	if u == nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// breakerChanged emits an event for a change of the breaker, unless the breaker
// lets all requests pass both before and after the change.
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

// lets reports whether a breaker in this state lets all requests pass.
func lets(s breaker.State) bool { return s == breaker.Closed || s == breaker.ForcedClosed }

// resetBreaker resets the breaker, unless an operator has forced its state.
func (p *provider) resetBreaker() {
	if m := p.override.get(); m == automatic || m == draining {
		p.upstream.gate.breaker.Reset()
	}
}

// recovered records and logs the end of an outage, if the gate is open again.
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

// observe counts and emits the events of the provider's requests.
func (p *provider) observe(ev retry.Event) {
	switch ev.Kind {
	case retry.AttemptStarted:
		return
	case retry.Succeeded:
		if ev.Attempt < 2 {
			return // a success at the first attempt is not reported
		}
	case retry.Waiting:
		if ev.Delay == 0 && ev.By == retry.BySchedule {
			p.stats.retries.add("at-once", 1)
			return // there is no wait; a failover has its own event
		}
		p.stats.retries.add(ev.By.String(), 1)
		p.stats.waits.add(ev.By.String(), ev.Delay.Seconds())
		p.gateway.records.observe(&ev)
	case retry.HedgeStarted:
		p.stats.hedges.Add(1)
	default:
	}
	p.gateway.emit(ev)
}

// applyAccounts makes the keys of limited accounts wait.
func (p *provider) applyAccounts() {
	for _, k := range p.keys.keys {
		if k.account != nil {
			p.applyAccount(k.account)
		}
	}
}

// applyAccount makes the keys of the account wait if it is limited, and otherwise ends
// their wait.
func (p *provider) applyAccount(account *sharedAccount) {
	if p.keys.applyAccount(account, p.spec.Name) {
		p.upstream.subscribers.wake(reopened)
	}
}

// control applies the mode that an operator has chosen.
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
		p.upstream.subscribers.wake(reopened) // requests that wait at this gate need no wake: probeNow has chosen a probe
		return err
	}
	p.upstream.subscribers.wake(overridden)
	return err
}

// The errors of [Gateway.Control], for use with errors.Is.
var (
	ErrUnknownProvider = errors.New("no such provider")
	ErrUnknownAction   = errors.New("no such action")
)

// The actions of [Gateway.Control]. Open and Close mean opening and closing the circuit
// breaker of the provider.
const (
	Open  = "open"  // send no request to the provider, until another action
	Close = "close" // treat the provider as up even if it fails
	Drain = "drain" // finish requests in progress; new ones go to a fallback or are rejected
	Reset = "reset" // back to automatic: clear the state of its keys; if it is down, the next request is a probe
)

// Actions lists all actions.
var Actions = []string{Open, Close, Drain, Reset}
