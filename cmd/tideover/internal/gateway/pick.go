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
	wait   time.Duration // how long it will be there, for those that go away by themselves
	next   time.Duration // of cooling: how long it is until one request may go all the same
	of     scope         // of cooling and shunned
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
func (o *blocker) passing() bool { return o.kind == keysThrottled || o.kind == down }

// pickTarget returns the attempt that the request may make. It waits while no provider
// would take the request.
func (t *request) pickTarget(ctx context.Context, req *http.Request) (*attempt, error) {
	record(req)
	for {
		if t.needsModel() {
			t.readModel(req)
		}
		list, fresh := t.rankedTargets()
		var met []blocker
		for i := range t.targets {
			if i == fresh { // behind this, all have had their chances
				if l := t.tryRejectedKeys(ctx, met, anyOf); l != nil {
					return l, nil
				}
			}
			v := &t.targets[i]
			if list != nil {
				v = list[i]
			}
			l, o := t.tryTarget(ctx, v, false)
			if l != nil {
				return l, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			met = append(met, *o)
		}
		if fresh == len(t.targets) {
			if l := t.tryRejectedKeys(ctx, met, anyOf); l != nil {
				return l, nil
			}
		}
		if l, err := t.waitForTarget(ctx, met); l != nil || err != nil {
			return l, err
		}
	}
}

// tryTarget returns an attempt at a provider that would take the request now, or what
// blocks it. It waits only for the limits of a provider that is up. As a last resort it
// takes a key that was rejected.
func (t *request) tryTarget(ctx context.Context, v *requestTarget, last bool) (*attempt, *blocker) {
	p := v.p
	if !p.override.isOpenTo(t.began) {
		return nil, t.forbidden(v)
	}
	if wait, after := p.keys.left(t.scope()); after > 0 && !last {
		o := t.keyless(v, wait, after)
		if found, next := p.gate.state(); o.kind == keysRejected && found == gateClosed {
			o.kind, o.wait = down, next // its gate lets no request pass, with any key
		}
		return nil, o
	}
	pass, found, next := p.gate.try(ctx)
	switch found {
	case gateClosed:
		return nil, &blocker{target: v, kind: down, wait: next}
	case gateReleasing:
		var err error
		if pass, err = t.queue(ctx, v, nil); err != nil {
			return nil, blockerOf(v, err)
		}
	case gateOpen:
	}
	return t.acquire(ctx, v, pass)
}

// forbidden returns the blocker of a provider that an operator has closed.
func (t *request) forbidden(v *requestTarget) *blocker {
	return &blocker{target: v, kind: forbidden, mode: v.p.override.get()}
}

// keyless returns the blocker of a provider whose keys are all closed. If the request
// was rejected there before, rejected keys are no resort any more.
func (t *request) keyless(v *requestTarget, wait, next time.Duration) *blocker {
	o := &blocker{target: v, kind: keysThrottled, wait: wait, next: next, of: t.scope()}
	t.mu.Lock()
	fresh := len(v.rejectedKeys) == 0
	t.mu.Unlock()
	if fresh && v.p.keys.onlyRejected(o.of) {
		o.kind = keysRejected
	}
	return o
}

// acquire passes what is behind the gate: limits, keys and the breaker. A rejected key
// will do, because the request has no other target at this point.
func (t *request) acquire(ctx context.Context, v *requestTarget, pass health.Pass) (*attempt, *blocker) {
	p := v.p
	l := &attempt{request: t, target: v, p: p, pass: pass}
	if pass.Probe() {
		ctx = limit.WithPriority(ctx, limit.Highest) // all the others wait for it
	}
	waited, err := l.waitForLimits(ctx)
	if err != nil {
		l.cancel()
		return nil, &blocker{target: v, kind: full, err: err}
	}
	if waited && !pass.Probe() {
		// The gate may have closed meanwhile. What was won by waiting is lost then,
		// as it is for everybody.
		again, found, next := p.gate.try(ctx)
		if l.pass = again; found != gateOpen {
			l.cancel()
			return nil, &blocker{target: v, kind: down, wait: next}
		}
	}
	t.mu.Lock()
	refused := v.rejectedCall
	t.mu.Unlock()
	if o := l.pickKey(refused); o != nil {
		l.cancel()
		return nil, o
	}
	if !l.pass.Probe() {
		if l.permit, err = p.gate.breaker.Allow(); err != nil {
			l.cancel()
			if !p.override.isOpenTo(t.began) {
				return nil, t.forbidden(v)
			}
			p.gate.shut("breaker") // it has opened just now
			return nil, &blocker{target: v, kind: down}
		}
	}
	return l, nil
}

// pickKey chooses the attempt's key, or returns what blocks it.
func (l *attempt) pickKey(refused *health.Call) *blocker {
	ring, s := l.p.keys, l.request.scope()
	var ok bool
	if l.call, l.key, l.probe, ok = ring.pick(refused, false, s); ok {
		return nil
	}
	wait, next := ring.left(s)
	if next == 0 {
		return &blocker{target: l.target, kind: noOther}
	}
	o := l.request.keyless(l.target, wait, next)
	if o.kind == keysRejected {
		if l.call, l.key, l.probe, ok = ring.pick(nil, true, s); ok {
			return nil
		}
		o.kind = keysThrottled
	}
	return o
}

// waited counts the time since then as a wait of the kind.
func (t *request) waited(what string, since time.Duration) {
	if d := clock.Now() - since; d > time.Millisecond {
		t.asked.stats.waits.add(what, d.Seconds())
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
func (l *attempt) waitForLimits(ctx context.Context) (waited bool, err error) {
	p, t := l.p, l.request
	began := clock.Now()
	if p.slots != nil {
		if !p.slots.TryAcquire() {
			waited = true
			err = p.slots.Acquire(ctx)
			t.waited("slot", began)
		}
		if err != nil {
			return waited, err
		}
		l.slot = true
	}
	if p.rate == nil && p.send == nil {
		return waited, nil
	}
	began = clock.Now()
	if p.rate != nil {
		err = p.rate.Wait(ctx)
	}
	if err == nil && p.send != nil {
		p.waiting[t.class.Class()].Add(1)
		err = p.send.Wait(ctx)
		p.waiting[t.class.Class()].Add(-1)
	}
	if clock.Now()-began > time.Millisecond {
		waited = true
		t.waited("rate", began)
	}
	return waited, err
}

// cancel gives back what the attempt has acquired: it is not made.
func (l *attempt) cancel() {
	if l.probe {
		l.p.keys.throttles.giveBack(l.key, l.request.scope())
	}
	l.p.gate.done(l.pass, health.Canceled)
	l.call.Done(health.Canceled)
	l.release()
}
