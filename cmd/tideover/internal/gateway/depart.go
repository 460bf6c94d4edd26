package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// obstacle is what keeps a request from a provider.
type obstacle struct {
	v    *visit
	kind kind
	wait time.Duration // how long it will be there, for those that go away by themselves
	next time.Duration // of cooling: how long it is until one request may go all the same
	of   scope         // of cooling and shunned
	err  error         // what a limit said
	mode mode          // what somebody said
}

type kind uint8

const (
	forbidden kind = iota // somebody said so
	noOther               // the request has been to all its keys
	cooling               // all its keys were told to wait
	shunned               // all its keys were refused: for when nobody else is ready
	down                  // its gate is closed
	full                  // a gate or a limit turns the request away
	changed               // none any more: it is time to look again
)

// passing reports whether the obstacle goes away by itself.
func (o *obstacle) passing() bool { return o.kind == cooling || o.kind == down }

// depart returns the leg on which the request may go. It waits while no provider
// would take it.
func (t *trip) depart(ctx context.Context, req *http.Request) (*leg, error) {
	record(req)
	for {
		if t.needsModel() {
			t.readModel(req)
		}
		list, fresh := t.ranked()
		var met []obstacle
		for i := range t.visits {
			if i == fresh { // behind this, all have had their chances
				if l := t.resort(ctx, met, anyOf); l != nil {
					return l, nil
				}
			}
			v := &t.visits[i]
			if list != nil {
				v = list[i]
			}
			l, o := t.try(ctx, v, false)
			if l != nil {
				return l, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			met = append(met, *o)
		}
		if fresh == len(t.visits) {
			if l := t.resort(ctx, met, anyOf); l != nil {
				return l, nil
			}
		}
		if l, err := t.await(ctx, met); l != nil || err != nil {
			return l, err
		}
	}
}

// try returns the leg to a provider that would take the request now, or what keeps
// it from that. It waits only for the limits of a provider that is up. As a last
// resort it takes a key that was refused.
func (t *trip) try(ctx context.Context, v *visit, last bool) (*leg, *obstacle) {
	p := v.p
	if !p.hand.lets(t.began) {
		return nil, t.forbidden(v)
	}
	if wait, after := p.ring.left(t.scope()); after > 0 && !last {
		o := t.keyless(v, wait, after)
		if found, next := p.door.look(); o.kind == shunned && found == closed {
			o.kind, o.wait = down, next // nobody passes, whatever the key
		}
		return nil, o
	}
	pass, found, next := p.door.try(ctx)
	switch found {
	case closed:
		return nil, &obstacle{v: v, kind: down, wait: next}
	case filing:
		var err error
		if pass, err = t.queue(ctx, v, nil); err != nil {
			return nil, turned(v, err)
		}
	case passes:
	}
	return t.enter(ctx, v, pass)
}

// forbidden returns the obstacle that somebody's word is.
func (t *trip) forbidden(v *visit) *obstacle {
	return &obstacle{v: v, kind: forbidden, mode: v.p.hand.get()}
}

// keyless returns the obstacle that closed keys are. To a request that has been
// refused there, refused keys are no resort any more.
func (t *trip) keyless(v *visit, wait, next time.Duration) *obstacle {
	o := &obstacle{v: v, kind: cooling, wait: wait, next: next, of: t.scope()}
	t.mu.Lock()
	fresh := len(v.denied) == 0
	t.mu.Unlock()
	if fresh && v.p.ring.onlyShunned(o.of) {
		o.kind = shunned
	}
	return o
}

// enter passes what is behind the gate: keys, limits and the breaker.
// Who has come so far has nowhere else to go, so that a refused key will do.
func (t *trip) enter(ctx context.Context, v *visit, pass health.Pass) (*leg, *obstacle) {
	p := v.p
	l := &leg{trip: t, visit: v, p: p, pass: pass}
	if pass.Probe() {
		ctx = limit.WithPriority(ctx, limit.Highest) // all the others wait for it
	}
	waited, err := l.limits(ctx)
	if err != nil {
		l.back()
		return nil, &obstacle{v: v, kind: full, err: err}
	}
	if waited && !pass.Probe() {
		// The gate may have closed meanwhile. What was won by waiting is lost then,
		// as it is for everybody.
		again, found, next := p.door.try(ctx)
		if l.pass = again; found != passes {
			l.back()
			return nil, &obstacle{v: v, kind: down, wait: next}
		}
	}
	t.mu.Lock()
	refused := v.refused
	t.mu.Unlock()
	if o := l.pick(refused); o != nil {
		l.back()
		return nil, o
	}
	if !l.pass.Probe() {
		if l.permit, err = p.door.breaker.Allow(); err != nil {
			l.back()
			if !p.hand.lets(t.began) {
				return nil, t.forbidden(v)
			}
			p.door.shut("breaker") // it has opened just now
			return nil, &obstacle{v: v, kind: down}
		}
	}
	return l, nil
}

// pick chooses the leg's key, or returns what keeps it from that.
func (l *leg) pick(refused *health.Call) *obstacle {
	ring, s := l.p.ring, l.trip.scope()
	var ok bool
	if l.call, l.key, l.probe, ok = ring.pick(refused, false, s); ok {
		return nil
	}
	wait, next := ring.left(s)
	if next == 0 {
		return &obstacle{v: l.visit, kind: noOther}
	}
	o := l.trip.keyless(l.visit, wait, next)
	if o.kind == shunned {
		if l.call, l.key, l.probe, ok = ring.pick(nil, true, s); ok {
			return nil
		}
		o.kind = cooling
	}
	return o
}

// waited counts the time since then.
func (t *trip) waited(what string, since time.Duration) {
	if d := clock.Now() - since; d > time.Millisecond {
		t.asked.tally.waits.add(what, d.Seconds())
	}
}

// queued returns how many requests wait for a key or the adaptive rate.
func (p *provider) queued() (n int) {
	for i := range p.waiting {
		n += int(p.waiting[i].Load())
	}
	return n
}

// limits waits for the leg's turn, and reports whether it had to.
func (l *leg) limits(ctx context.Context) (waited bool, err error) {
	p, t := l.p, l.trip
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

// back gives back what the leg has got so far: it will not go.
func (l *leg) back() {
	if l.probe {
		l.p.ring.throttles.giveBack(l.key, l.trip.scope())
	}
	l.p.door.done(l.pass, health.Canceled)
	l.call.Done(health.Canceled)
	l.release()
}
