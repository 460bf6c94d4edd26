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

// blockerOf returns the blocker that an error of a gate is.
func blockerOf(v *requestTarget, err error) *blocker {
	if errors.Is(err, errWake) {
		return &blocker{target: v, kind: changed}
	}
	return &blocker{target: v, kind: full, err: err}
}

// waitForTarget waits until the first of the blockers goes away. It returns an attempt
// if that was a gate; without an error or an attempt it is time to try all targets
// again. Providers with attempts left have been tried with their rejected keys, too. Of
// the others, the provider that was asked for is tried with its rejected keys before the
// wait: its response is worth more to the caller than a wait for another provider.
func (t *request) waitForTarget(ctx context.Context, met []blocker) (*attempt, error) {
	if l := t.tryRejectedKeys(ctx, met, func(o *blocker) bool { return o.target.p == t.asked }); l != nil {
		return l, nil
	}
	var first *blocker
	for i := range met {
		switch o := &met[i]; {
		case o.kind == changed:
			return nil, nil
		case o.kind == full && i == 0:
			return nil, t.unavailableProblem(met) // it is up, and there are too many already
		case o.passing() && (first == nil || o.wait < first.wait):
			first = o
		}
	}
	tooLong := first != nil && (first.wait > first.target.p.serverWait() || !inTime(ctx, first.wait))
	if first == nil || tooLong {
		if l := t.tryRejectedKeys(ctx, met, anyOf); l != nil {
			return l, nil
		}
	}
	switch {
	case first == nil:
		return nil, t.unavailableProblem(met)
	case tooLong:
		return nil, t.waitTooLongProblem(first, met)
	case first.kind == keysThrottled:
		return nil, t.sleep(ctx, first, met)
	}
	pass, err := t.queue(ctx, first.target, met)
	if err != nil {
		return nil, t.after(blockerOf(first.target, err), met)
	}
	if !first.target.p.override.isOpenTo(t.began) {
		first.target.p.gate.done(pass, health.Canceled)
		return nil, nil
	}
	l, behind := t.acquire(ctx, first.target, pass)
	if l == nil {
		return nil, t.after(behind, met)
	}
	return l, nil
}

// tryRejectedKeys returns an attempt with a key that was rejected before, at one of the
// allowed providers, or nil. A new blocker replaces the old one.
func (t *request) tryRejectedKeys(ctx context.Context, met []blocker, may func(*blocker) bool) *attempt {
	for i := range met {
		if met[i].kind != keysRejected || !may(&met[i]) {
			continue
		}
		l, o := t.tryTarget(ctx, met[i].target, true)
		if l != nil {
			return l
		}
		met[i] = *o
	}
	return nil
}

// anyOf allows all providers.
func anyOf(*blocker) bool { return true }

// after returns the error of a blocker that was met after a wait; nil if it is time to
// try all targets again.
func (t *request) after(o *blocker, met []blocker) error {
	if o.kind != full {
		return nil
	}
	for i := range met {
		if met[i].target == o.target {
			met[i] = *o
		}
	}
	return t.rejectedProblem(o, met)
}

// inTime reports whether the wait ends before the context does.
func inTime(ctx context.Context, wait time.Duration) bool {
	at, ok := ctx.Deadline()
	return !ok || wait < time.Until(at)
}

// watchTargets returns a context that also ends when something changes at one of the
// providers that the request may go to. at is the one it waits for.
func (t *request) watchTargets(ctx context.Context, at *requestTarget) (own context.Context, wake, stop func()) {
	own, cancel := context.WithCancelCause(ctx)
	wake = func() { cancel(errWake) }
	var remove []func()
	for i := range t.targets {
		v := &t.targets[i]
		w := &subscriber{here: v == at, choices: len(t.targets) > 1, wake: wake}
		remove = append(remove, v.p.subscribers.add(w))
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
func (t *request) queue(ctx context.Context, v *requestTarget, met []blocker) (health.Pass, error) {
	began := clock.Now()
	ctx, wake, stop := t.watchTargets(ctx, v)
	defer stop()
	for _, o := range met {
		if o.target == v {
			continue
		}
		if t.ready(o.target) && o.kind != noOther && o.kind != full {
			return health.Pass{}, errWake // while we began to watch
		}
		if o.kind == keysThrottled {
			timer := time.AfterFunc(o.wait, wake)
			defer timer.Stop()
		}
	}
	pass, err := v.p.gate.wait(ctx)
	t.waited("gate", began)
	if err != nil && errors.Is(context.Cause(ctx), errWake) {
		return pass, errWake
	}
	return pass, err
}

// sleep waits until a key may be used again, and a little longer: all who were
// told the same moment would come at it. It ends early when it is time for a probe.
func (t *request) sleep(ctx context.Context, o *blocker, met []blocker) error {
	p := o.target.p
	if p.queued() >= p.spec.Queue {
		o.kind, o.err = full, limit.ErrQueueFull
		return t.rejectedProblem(o, met)
	}
	began := clock.Now()
	ctx, _, stop := t.watchTargets(ctx, nil)
	defer stop()
	if _, next := p.keys.left(o.of); next == 0 || !p.override.isOpenTo(t.began) {
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
