package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// waiter is a request that no provider takes at once, and what blocks it at each of them.
type waiter struct {
	*request
	met []blocker
}

// errWake is why a wait ends early: something changed.
var errWake = errors.New("something changed")

// blockerOf returns the blocker that an error of a gate is.
func blockerOf(v *requestTarget, err error) *blocker {
	if errors.Is(err, errWake) {
		return &blocker{target: v, kind: changed}
	}
	return &blocker{target: v, kind: full, err: err}
}

// wait waits until the first of the blockers goes away. It returns an attempt
// if that was a gate; without an error or an attempt it is time to try all targets
// again. Providers with attempts left have been tried with their rejected keys, too. Of
// the others, the provider that was asked for is tried with its rejected keys before the
// wait: its response is worth more to the caller than a wait for another provider.
func (w *waiter) wait(ctx context.Context) (*attempt, error) {
	if a := w.tryRejectedKeys(ctx, func(b *blocker) bool { return b.target.p == w.asked }); a != nil {
		return a, nil
	}
	var first *blocker
	for i := range w.met {
		switch b := &w.met[i]; {
		case b.kind == changed:
			return nil, nil
		case b.kind == full && i == 0:
			return nil, w.unavailableProblem() // it is up, and there are too many already
		case b.passing() && (first == nil || b.wait < first.wait):
			first = b
		}
	}
	tooLong := first != nil && (first.wait > first.target.p.serverWait() || !inTime(ctx, first.wait))
	if first == nil || tooLong {
		if a := w.tryRejectedKeys(ctx, anyOf); a != nil {
			return a, nil
		}
	}
	switch {
	case first == nil:
		return nil, w.unavailableProblem()
	case tooLong:
		return nil, w.waitTooLongProblem(first)
	case first.kind == keysThrottled:
		return nil, w.sleep(ctx, first)
	}
	pass, err := w.queue(ctx, first.target, w.met)
	if err != nil {
		return nil, w.after(blockerOf(first.target, err))
	}
	if !first.target.p.override.isOpenTo(w.began) {
		first.target.p.gate.done(pass, health.Canceled)
		return nil, nil
	}
	a, behind := w.acquire(ctx, first.target, pass)
	if a == nil {
		return nil, w.after(behind)
	}
	return a, nil
}

// tryRejectedKeys returns an attempt with a key that was rejected before, at one of the
// allowed providers, or nil. A new blocker replaces the old one.
func (w *waiter) tryRejectedKeys(ctx context.Context, may func(*blocker) bool) *attempt {
	for i := range w.met {
		if w.met[i].kind != keysRejected || !may(&w.met[i]) {
			continue
		}
		a, b := w.tryTarget(ctx, w.met[i].target, true)
		if a != nil {
			return a
		}
		w.met[i] = *b
	}
	return nil
}

// anyOf allows all providers.
func anyOf(*blocker) bool { return true }

// after returns the error of a blocker that was met after a wait; nil if it is time to
// try all targets again.
func (w *waiter) after(b *blocker) error {
	if b.kind != full {
		return nil
	}
	for i := range w.met {
		if w.met[i].target == b.target {
			w.met[i] = *b
		}
	}
	return w.rejectedProblem(b)
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

// sleep waits until a key may be used again, and a random time longer: all requests that
// wait for the key would be sent at the same moment. It ends early when a probe is due.
func (w *waiter) sleep(ctx context.Context, b *blocker) error {
	p := b.target.p
	if p.queued() >= p.spec.Queue {
		b.kind, b.err = full, limit.ErrQueueFull
		return w.rejectedProblem(b)
	}
	began := clock.Now()
	ctx, _, stop := w.watchTargets(ctx, nil)
	defer stop()
	if _, next := p.keys.left(b.of); next == 0 || !p.override.isOpenTo(w.began) {
		return nil // while we began to watch
	}
	p.waiting[w.class.Class()].Add(1)
	defer p.waiting[w.class.Class()].Add(-1)
	defer w.waited("key", began)
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

// byHandFor is the Retry-After of a provider that an operator has closed: it is not known
// when it will be opened.
const byHandFor = 5 * time.Second

// waitTooLongProblem returns the problem of a provider that will not be back in time.
func (w *waiter) waitTooLongProblem(b *blocker) *problem {
	if !inTime(w.caller, b.wait) {
		w.asked.stats.late.Add(1)
	}
	status, code, after := http.StatusServiceUnavailable, codeDown, b.wait
	if b.kind != down {
		code, after = codeCooling, b.next
		if why := b.target.p.keys.blockReasons(b.of); why.throttled() {
			status = http.StatusTooManyRequests
		}
	}
	p := w.newProblem(status, code, after, w.describe(w.met))
	p.later.After = b.wait // a caller that retries has only so many attempts
	return p
}

// unavailableProblem returns the problem of a request that no provider takes, however
// long it waits.
func (w *waiter) unavailableProblem() error {
	for i := range w.met {
		if w.met[i].err != nil {
			return w.rejectedProblem(&w.met[i])
		}
	}
	for _, b := range w.met {
		if b.kind == forbidden && b.target.p == w.asked {
			code := codeDraining
			if b.mode == openedByHand {
				code = codeOpened
			}
			return w.newProblem(http.StatusServiceUnavailable, code, byHandFor, w.describe(w.met))
		}
	}
	return w.newProblem(http.StatusServiceUnavailable, codeCooling, 0, w.describe(w.met))
}

// rejectedProblem returns the problem of a request that a gate or a limit did not let
// wait.
func (w *waiter) rejectedProblem(b *blocker) error {
	shut, _ := errors.AsType[*health.ClosedError](b.err)
	rate, _ := errors.AsType[*limit.RateError](b.err)
	switch {
	case shut != nil:
		w.asked.stats.late.Add(1)
		after := shut.Next
		if b.target.p.gate.learned() > 0 {
			after = max(after, shut.Expected)
		}
		return w.newProblem(http.StatusServiceUnavailable, codeDown, after, w.describe(w.met))
	case rate != nil && !inTime(w.caller, rate.Wait):
		w.asked.stats.late.Add(1)
		return w.newProblem(http.StatusGatewayTimeout, codeDeadline, rate.Wait, w.describe(w.met)+", and the caller can't wait so long")
	case rate != nil:
		return w.newProblem(http.StatusServiceUnavailable, codeRate, rate.Wait, w.describe(w.met))
	case errors.Is(b.err, limit.ErrQueueFull), errors.Is(b.err, limit.ErrShed):
		return w.newProblem(http.StatusServiceUnavailable, codeQueue, time.Second, w.describe(w.met))
	}
	return b.err // the context's own
}
