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

// errWake is why a wait ends early: something changed.
var errWake = errors.New("something changed")

// turned returns the obstacle that an error of a gate is.
func turned(v *visit, err error) *obstacle {
	if errors.Is(err, errWake) {
		return &obstacle{v: v, kind: changed}
	}
	return &obstacle{v: v, kind: full, err: err}
}

// await waits until the first of the obstacles goes away. It returns a leg if
// that was a gate; without an error or a leg it is time to look again. All who have
// chances left have been asked with the keys that are avoided, too; of the others,
// what the keys of the provider that was asked for are told now is worth more to the
// caller than a wait for another one.
func (t *trip) await(ctx context.Context, met []obstacle) (*leg, error) {
	if l := t.resort(ctx, met, func(o *obstacle) bool { return o.v.p == t.asked }); l != nil {
		return l, nil
	}
	var first *obstacle
	for i := range met {
		switch o := &met[i]; {
		case o.kind == changed:
			return nil, nil
		case o.kind == full && i == 0:
			return nil, t.hopeless(met) // it is up, and there are too many already
		case o.passing() && (first == nil || o.wait < first.wait):
			first = o
		}
	}
	tooLong := first != nil && (first.wait > first.v.p.serverWait() || !inTime(ctx, first.wait))
	if first == nil || tooLong {
		if l := t.resort(ctx, met, anyOf); l != nil {
			return l, nil
		}
	}
	switch {
	case first == nil:
		return nil, t.hopeless(met)
	case tooLong:
		return nil, t.tooLong(first, met)
	case first.kind == cooling:
		return nil, t.sleep(ctx, first, met)
	}
	pass, err := t.queue(ctx, first.v, met)
	if err != nil {
		return nil, t.after(turned(first.v, err), met)
	}
	if !first.v.p.hand.lets(t.began) {
		first.v.p.door.done(pass, health.Canceled)
		return nil, nil
	}
	l, behind := t.enter(ctx, first.v, pass)
	if l == nil {
		return nil, t.after(behind, met)
	}
	return l, nil
}

// resort returns the leg on which the request goes out with a refused key, to one of
// the providers that may be, or nil. What is met instead replaces the obstacle.
func (t *trip) resort(ctx context.Context, met []obstacle, may func(*obstacle) bool) *leg {
	for i := range met {
		if met[i].kind != shunned || !may(&met[i]) {
			continue
		}
		l, o := t.try(ctx, met[i].v, true)
		if l != nil {
			return l
		}
		met[i] = *o
	}
	return nil
}

// anyOf is all of them.
func anyOf(*obstacle) bool { return true }

// after returns what an obstacle means that was met after waiting: an error only if
// looking again would not help.
func (t *trip) after(o *obstacle, met []obstacle) error {
	if o.kind != full {
		return nil
	}
	for i := range met {
		if met[i].v == o.v {
			met[i] = *o
		}
	}
	return t.turnedAway(o, met)
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
// told the same moment would come at it. It ends early when it is time for a probe.
func (t *trip) sleep(ctx context.Context, o *obstacle, met []obstacle) error {
	p := o.v.p
	if p.queued() >= p.spec.Queue {
		o.kind, o.err = full, limit.ErrQueueFull
		return t.turnedAway(o, met)
	}
	began := clock.Now()
	ctx, _, stop := t.watched(ctx, nil)
	defer stop()
	if _, next := p.ring.left(o.of); next == 0 || !p.hand.lets(t.began) {
		return nil // while we began to watch
	}
	p.waiting[t.class.Class()].Add(1)
	defer p.waiting[t.class.Class()].Add(-1)
	defer t.waited("key", began)
	spread := min(o.wait/5, 30*time.Second)
	if o.next < o.wait {
		spread = 0 // only one may go then
	}
	if at, ok := ctx.Deadline(); ok {
		spread = min(spread, max(time.Until(at)-o.wait, 0)/2)
	}
	timer := time.NewTimer(o.next + time.Duration(rand.Float64()*float64(spread)))
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
