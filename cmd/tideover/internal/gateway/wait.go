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
func (r *request) waitForTarget(ctx context.Context, met []blocker) (*attempt, error) {
	if a := r.tryRejectedKeys(ctx, met, func(b *blocker) bool { return b.target.p == r.asked }); a != nil {
		return a, nil
	}
	var first *blocker
	for i := range met {
		switch b := &met[i]; {
		case b.kind == changed:
			return nil, nil
		case b.kind == full && i == 0:
			return nil, r.unavailableProblem(met) // it is up, and there are too many already
		case b.passing() && (first == nil || b.wait < first.wait):
			first = b
		}
	}
	tooLong := first != nil && (first.wait > first.target.p.serverWait() || !inTime(ctx, first.wait))
	if first == nil || tooLong {
		if a := r.tryRejectedKeys(ctx, met, anyOf); a != nil {
			return a, nil
		}
	}
	switch {
	case first == nil:
		return nil, r.unavailableProblem(met)
	case tooLong:
		return nil, r.waitTooLongProblem(first, met)
	case first.kind == keysThrottled:
		return nil, r.sleep(ctx, first, met)
	}
	pass, err := r.queue(ctx, first.target, met)
	if err != nil {
		return nil, r.after(blockerOf(first.target, err), met)
	}
	if !first.target.p.override.isOpenTo(r.began) {
		first.target.p.gate.done(pass, health.Canceled)
		return nil, nil
	}
	a, behind := r.acquire(ctx, first.target, pass)
	if a == nil {
		return nil, r.after(behind, met)
	}
	return a, nil
}

// tryRejectedKeys returns an attempt with a key that was rejected before, at one of the
// allowed providers, or nil. A new blocker replaces the old one.
func (r *request) tryRejectedKeys(ctx context.Context, met []blocker, may func(*blocker) bool) *attempt {
	for i := range met {
		if met[i].kind != keysRejected || !may(&met[i]) {
			continue
		}
		a, b := r.tryTarget(ctx, met[i].target, true)
		if a != nil {
			return a
		}
		met[i] = *b
	}
	return nil
}

// anyOf allows all providers.
func anyOf(*blocker) bool { return true }

// after returns the error of a blocker that was met after a wait; nil if it is time to
// try all targets again.
func (r *request) after(b *blocker, met []blocker) error {
	if b.kind != full {
		return nil
	}
	for i := range met {
		if met[i].target == b.target {
			met[i] = *b
		}
	}
	return r.rejectedProblem(b, met)
}

// inTime reports whether the wait ends before the context does.
func inTime(ctx context.Context, wait time.Duration) bool {
	at, ok := ctx.Deadline()
	return !ok || wait < time.Until(at)
}

// watchTargets returns a context that also ends when something changes at one of the
// providers that the request may go to. at is the one it waits for.
func (r *request) watchTargets(ctx context.Context, at *requestTarget) (own context.Context, wake, stop func()) {
	own, cancel := context.WithCancelCause(ctx)
	wake = func() { cancel(errWake) }
	var remove []func()
	for i := range r.targets {
		v := &r.targets[i]
		w := &subscriber{here: v == at, choices: len(r.targets) > 1, wake: wake}
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
func (r *request) queue(ctx context.Context, v *requestTarget, met []blocker) (health.Pass, error) {
	began := clock.Now()
	ctx, wake, stop := r.watchTargets(ctx, v)
	defer stop()
	for _, b := range met {
		if b.target == v {
			continue
		}
		if r.ready(b.target) && b.kind != noOther && b.kind != full {
			return health.Pass{}, errWake // while we began to watch
		}
		if b.kind == keysThrottled {
			timer := time.AfterFunc(b.wait, wake)
			defer timer.Stop()
		}
	}
	pass, err := v.p.gate.wait(ctx)
	r.waited("gate", began)
	if err != nil && errors.Is(context.Cause(ctx), errWake) {
		return pass, errWake
	}
	return pass, err
}

// sleep waits until a key may be used again, and a little longer: all who were
// told the same moment would come at it. It ends early when it is time for a probe.
func (r *request) sleep(ctx context.Context, b *blocker, met []blocker) error {
	p := b.target.p
	if p.queued() >= p.spec.Queue {
		b.kind, b.err = full, limit.ErrQueueFull
		return r.rejectedProblem(b, met)
	}
	began := clock.Now()
	ctx, _, stop := r.watchTargets(ctx, nil)
	defer stop()
	if _, next := p.keys.left(b.of); next == 0 || !p.override.isOpenTo(r.began) {
		return nil // while we began to watch
	}
	p.waiting[r.class.Class()].Add(1)
	defer p.waiting[r.class.Class()].Add(-1)
	defer r.waited("key", began)
	spread := min(b.wait/5, 30*time.Second)
	if b.next < b.wait {
		spread = 0 // only one may go then
	}
	if at, ok := ctx.Deadline(); ok {
		spread = min(spread, max(time.Until(at)-b.wait, 0)/2)
	}
	timer := time.NewTimer(b.next + time.Duration(rand.Float64()*float64(spread)))
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
