package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// blocker is what keeps a request from a provider.
type blocker struct {
	target *requestTarget
	kind   kind
	wait   time.Duration // how long it lasts, if it goes away by itself
	next   time.Duration // of keysThrottled: how long it is until one request may go, if need be as a probe
	of     scope         // of keysThrottled and keysRejected
	err    error         // what a limit said
	mode   mode          // of forbidden: the operator's override
}

type kind uint8

const (
	forbidden     kind = iota // by an operator's override
	noOther                   // the request has been to all its keys
	keysThrottled             // all its keys were told to wait
	keysRejected              // all its keys were rejected: for when no other provider is ready
	down                      // its gate is closed
	full                      // a gate or a limit turns the request away
	changed                   // none any more: it is time to look again
)

// passing reports whether the blocker goes away by itself.
func (b *blocker) passing() bool { return b.kind == keysThrottled || b.kind == down }

// pickTarget returns the attempt that the request may make. It waits while no provider
// would take the request.
func (r *request) pickTarget(ctx context.Context, req *http.Request) (*attempt, error) {
	record(req)
	for {
		if r.needsModel() {
			r.readModel(req)
		}
		list, fresh := r.rankedTargets()
		w := waiter{request: r}
		for i := range r.targets {
			if i == fresh { // from here on, all have had their attempts
				if a := w.tryRejectedKeys(ctx, anyOf); a != nil {
					return a, nil
				}
			}
			v := &r.targets[i]
			if list != nil {
				v = list[i]
			}
			a, b := r.tryTarget(ctx, v, false)
			if a != nil {
				return a, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			w.met = append(w.met, *b)
		}
		if fresh == len(r.targets) {
			if a := w.tryRejectedKeys(ctx, anyOf); a != nil {
				return a, nil
			}
		}
		if a, err := w.wait(ctx); a != nil || err != nil {
			return a, err
		}
	}
}

// tryTarget returns an attempt at a provider that would take the request now, or what
// blocks it. It waits only for the limits of a provider that is up. As a last resort it
// takes a key that was rejected.
func (r *request) tryTarget(ctx context.Context, v *requestTarget, last bool) (*attempt, *blocker) {
	p := v.p
	if !p.override.isOpenTo(r.began) {
		return nil, r.forbidden(v)
	}
	if wait, after := p.keys.left(r.scope()); after > 0 && !last {
		b := r.keyless(v, wait, after)
		if found, next := p.gate.state(); b.kind == keysRejected && found == gateClosed {
			b.kind, b.wait = down, next // its gate lets no request pass, with any key
		}
		return nil, b
	}
	pass, found, next := p.gate.try(ctx)
	switch found {
	case gateClosed:
		return nil, &blocker{target: v, kind: down, wait: next}
	case gateReleasing:
		var err error
		if pass, err = r.queue(ctx, v, nil); err != nil {
			return nil, blockerOf(v, err)
		}
	case gateOpen:
	}
	return r.acquire(ctx, v, pass)
}

// forbidden returns the blocker of a provider that an operator has closed.
func (r *request) forbidden(v *requestTarget) *blocker {
	return &blocker{target: v, kind: forbidden, mode: v.p.override.get()}
}

// keyless returns the blocker of a provider whose keys are all closed. If the request
// was rejected there before, rejected keys are no resort any more.
func (r *request) keyless(v *requestTarget, wait, next time.Duration) *blocker {
	b := &blocker{target: v, kind: keysThrottled, wait: wait, next: next, of: r.scope()}
	r.mu.Lock()
	fresh := len(v.rejectedKeys) == 0
	r.mu.Unlock()
	if fresh && v.p.keys.onlyRejected(b.of) {
		b.kind = keysRejected
	}
	return b
}

// acquire passes what is behind the gate: limits, keys and the breaker. A rejected key
// will do, because the request has no other target at this point.
func (r *request) acquire(ctx context.Context, v *requestTarget, pass health.Pass) (*attempt, *blocker) {
	p := v.p
	a := &attempt{request: r, target: v, p: p, pass: pass}
	if pass.Probe() {
		ctx = limit.WithPriority(ctx, limit.Highest) // all the others wait for it
	}
	waited, err := a.waitForLimits(ctx)
	if err != nil {
		a.cancel()
		return nil, &blocker{target: v, kind: full, err: err}
	}
	if waited && !pass.Probe() {
		// The gate may have closed meanwhile. What was won by waiting is lost then,
		// as it is for all requests.
		again, found, next := p.gate.try(ctx)
		if a.pass = again; found != gateOpen {
			a.cancel()
			return nil, &blocker{target: v, kind: down, wait: next}
		}
	}
	r.mu.Lock()
	refused := v.rejectedCall
	r.mu.Unlock()
	if b := a.pickKey(refused); b != nil {
		a.cancel()
		return nil, b
	}
	if !a.pass.Probe() {
		if a.permit, err = p.gate.breaker.Allow(); err != nil {
			a.cancel()
			if !p.override.isOpenTo(r.began) {
				return nil, r.forbidden(v)
			}
			p.gate.shut("breaker") // it has opened just now
			return nil, &blocker{target: v, kind: down}
		}
	}
	return a, nil
}

// pickKey chooses the attempt's key, or returns what blocks it.
func (a *attempt) pickKey(refused *health.Call) *blocker {
	pool, s := a.p.keys, a.request.scope()
	var ok bool
	if a.call, a.key, a.probe, ok = pool.pick(refused, false, s); ok {
		return nil
	}
	wait, next := pool.left(s)
	if next == 0 {
		return &blocker{target: a.target, kind: noOther}
	}
	b := a.request.keyless(a.target, wait, next)
	if b.kind == keysRejected {
		if a.call, a.key, a.probe, ok = pool.pick(nil, true, s); ok {
			return nil
		}
		b.kind = keysThrottled
	}
	return b
}

// waited counts the time since then as a wait of the kind.
func (r *request) waited(what string, since time.Duration) {
	if d := clock.Now() - since; d > time.Millisecond {
		r.asked.stats.waits.add(what, d.Seconds())
	}
}

// queued returns how many requests wait for a key or the adaptive rate.
func (p *provider) queued() (n int) {
	for i := range p.waiting {
		n += int(p.waiting[i].Load())
	}
	return n
}

// waitForLimits waits for the provider's limits, and reports whether it had to.
func (a *attempt) waitForLimits(ctx context.Context) (waited bool, err error) {
	p, r := a.p, a.request
	began := clock.Now()
	if p.slots != nil {
		if !p.slots.TryAcquire() {
			waited = true
			err = p.slots.Acquire(ctx)
			r.waited("slot", began)
		}
		if err != nil {
			return waited, err
		}
		a.slot = true
	}
	if p.rate == nil && p.send == nil {
		return waited, nil
	}
	began = clock.Now()
	if p.rate != nil {
		err = p.rate.Wait(ctx)
	}
	if err == nil && p.send != nil {
		p.waiting[r.class.Class()].Add(1)
		err = p.send.Wait(ctx)
		p.waiting[r.class.Class()].Add(-1)
	}
	if clock.Now()-began > time.Millisecond {
		waited = true
		r.waited("rate", began)
	}
	return waited, err
}

// cancel gives back what the attempt has acquired: it is not made.
func (a *attempt) cancel() {
	if a.probe {
		a.p.keys.throttles.giveBack(a.key, a.request.scope())
	}
	a.p.gate.done(a.pass, health.Canceled)
	a.call.Done(health.Canceled)
	a.release()
}

// blockedBecause returns in a few words why requests are not sent to the provider.
func (p *provider) blockedBecause(began time.Time, s scope) string {
	switch {
	case p.override.get() == openedByHand:
		return "opened by hand"
	case !p.override.isOpenTo(began):
		return "draining"
	}
	if _, next := p.keys.left(s); next > 0 {
		why := p.keys.blockReasons(s)
		return why.brief()
	}
	return "down"
}
