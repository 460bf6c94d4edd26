package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
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
	err  error         // what a limit said
}

type kind uint8

const (
	forbidden kind = iota // somebody said so
	noOther               // the request has been to all its keys
	cooling               // all its keys were told to wait
	down                  // its gate is closed
	full                  // a limit turns the request away
)

// depart returns the leg on which the request may go. It waits while no provider
// would take it.
func (t *trip) depart(ctx context.Context) (*leg, error) {
	for {
		list := t.ranked()
		met := make([]obstacle, 0, len(list))
		for _, v := range list {
			l, o := t.try(ctx, v)
			if l != nil {
				return l, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			met = append(met, *o)
		}
		if l, err := t.await(ctx, met); l != nil || err != nil {
			return l, err
		}
	}
}

// try returns the leg to a provider that would take the request now, or what keeps
// it from that. It waits only for the limits of a provider that is up.
func (t *trip) try(ctx context.Context, v *visit) (*leg, *obstacle) {
	p := v.p
	if !p.hand.lets(t.began) {
		return nil, &obstacle{v: v, kind: forbidden}
	}
	if wait := p.ring.closed(); wait > 0 {
		return nil, &obstacle{v: v, kind: cooling, wait: wait}
	}
	pass, found, next := p.door.try(ctx)
	switch found {
	case closed:
		return nil, &obstacle{v: v, kind: down, wait: next}
	case filing:
		var err error
		if pass, err = t.queue(ctx, v, nil); err != nil {
			return nil, &obstacle{v: v, kind: down, err: err}
		}
	case passes:
	}
	return t.enter(ctx, v, pass)
}

// enter passes what is behind the gate: keys, limits and the breaker.
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
	var ok bool
	var wait time.Duration
	if l.call, l.key, wait, ok = p.ring.pick(refused); !ok {
		l.back()
		if wait == 0 {
			return nil, &obstacle{v: v, kind: noOther}
		}
		return nil, &obstacle{v: v, kind: cooling, wait: wait}
	}
	if !l.pass.Probe() {
		if l.permit, err = p.door.breaker.Allow(); err != nil {
			l.back()
			if !p.hand.lets(t.began) {
				return nil, &obstacle{v: v, kind: forbidden}
			}
			p.door.shut("breaker") // it has opened just now
			return nil, &obstacle{v: v, kind: down}
		}
	}
	return l, nil
}

// errWake is why a wait ends early: something changed.
var errWake = errors.New("something changed")

// await waits until the first of the obstacles goes away. It returns a leg if
// that was a gate; without an error or a leg it is time to look again.
func (t *trip) await(ctx context.Context, met []obstacle) (*leg, error) {
	if met[0].kind == full {
		return nil, t.hopeless(met[:1]) // it is up, and there are too many already
	}
	first := -1
	for i, o := range met {
		if o.kind != cooling && o.kind != down || o.err != nil && !errors.Is(o.err, errWake) {
			continue
		}
		if errors.Is(o.err, errWake) {
			return nil, nil
		}
		if first < 0 || o.wait < met[first].wait {
			first = i
		}
	}
	if first < 0 {
		return nil, t.hopeless(met)
	}
	o := met[first]
	if o.wait > o.v.p.serverWait() || !inTime(ctx, o.wait) {
		return nil, t.tooLong(o)
	}
	if o.kind == cooling {
		return nil, t.sleep(ctx, o)
	}
	pass, err := t.queue(ctx, o.v, met)
	switch {
	case errors.Is(err, errWake):
		return nil, nil
	case err != nil:
		o.err = err
		return nil, t.hopeless([]obstacle{o})
	}
	if !o.v.p.hand.lets(t.began) {
		pass.Done(health.Canceled)
		return nil, nil
	}
	l, behind := t.enter(ctx, o.v, pass)
	if l == nil && behind.kind == full {
		return nil, t.hopeless([]obstacle{*behind})
	}
	return l, nil
}

// inTime reports whether the wait ends before the context does.
func inTime(ctx context.Context, wait time.Duration) bool {
	at, ok := ctx.Deadline()
	return !ok || wait < time.Until(at)
}

// watched returns a context that also ends when something changes at one of the
// providers that the request may go to. at is the one it waits for.
func (t *trip) watched(ctx context.Context, at *visit) (own context.Context, wake, stop func()) {
	own, cancel := context.WithCancelCause(ctx)
	wake = func() { cancel(errWake) }
	var remove []func()
	for i := range t.visits {
		v := &t.visits[i]
		w := &watcher{here: v == at, choices: len(t.visits) > 1, wake: wake}
		remove = append(remove, v.p.watchers.add(w))
	}
	return own, wake, func() {
		cancel(nil)
		for _, f := range remove {
			f()
		}
	}
}

// queue waits at the gate of a provider, unless another one is back before, or
// has a key again. The error is then errWake.
func (t *trip) queue(ctx context.Context, v *visit, met []obstacle) (health.Pass, error) {
	began := clock.Now()
	ctx, wake, stop := t.watched(ctx, v)
	defer stop()
	for _, o := range met {
		if o.v == v {
			continue
		}
		if t.ready(o.v) && o.kind != noOther && o.kind != full {
			return health.Pass{}, errWake // while we began to watch
		}
		if o.kind == cooling {
			timer := time.AfterFunc(o.wait, wake)
			defer timer.Stop()
		}
	}
	pass, err := v.p.door.wait(ctx)
	t.waited("gate", began)
	if err != nil && errors.Is(context.Cause(ctx), errWake) {
		return pass, errWake
	}
	return pass, err
}

// sleep waits until a key may be used again, and a little longer: all who were
// told the same moment would come at it.
func (t *trip) sleep(ctx context.Context, o obstacle) error {
	p := o.v.p
	if n := p.queued(); n >= p.spec.Queue {
		return t.hopeless([]obstacle{{v: o.v, kind: full, err: limit.ErrQueueFull}})
	}
	began := clock.Now()
	ctx, _, stop := t.watched(ctx, nil)
	defer stop()
	if p.ring.closed() == 0 || !p.hand.lets(t.began) {
		return nil // while we began to watch
	}
	p.waiting[t.class.Class()].Add(1)
	defer p.waiting[t.class.Class()].Add(-1)
	defer t.waited("key", began)
	spread := min(o.wait/5, 30*time.Second)
	if at, ok := ctx.Deadline(); ok {
		spread = min(spread, max(time.Until(at)-o.wait, 0)/2)
	}
	timer := time.NewTimer(o.wait + time.Duration(rand.Float64()*float64(spread)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, errWake) {
			return cause
		}
		return nil
	}
}

// waited counts the time since then.
func (t *trip) waited(what string, since time.Duration) {
	if d := clock.Now() - since; d > time.Millisecond {
		t.asked.tally.waits.add(what, d.Seconds())
	}
}

// queued returns how many requests wait for a key or a rate.
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
	p.waiting[t.class.Class()].Add(1)
	defer p.waiting[t.class.Class()].Add(-1)
	began = clock.Now()
	if p.rate != nil {
		err = p.rate.Wait(ctx)
	}
	if err == nil && p.send != nil {
		err = p.send.Wait(ctx)
	}
	if clock.Now()-began > time.Millisecond {
		waited = true
		t.waited("rate", began)
	}
	return waited, err
}

// back gives back what the leg has got so far: it will not go.
func (l *leg) back() {
	l.pass.Done(health.Canceled)
	l.call.Done(health.Canceled)
	l.release()
}
