package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// waiter is a request that no provider can take at once, with the blocker of each.
type waiter struct {
	*targetPicker
	met []blocker
}

// errWake ends a wait early, because something changed.
var errWake = errors.New("something changed")

// blockerOf returns the blocker for an error of a gate.
func blockerOf(v *requestTarget, err error) *blocker {
	if errors.Is(err, errWake) {
		return &blocker{target: v, kind: changed}
	}
	return &blocker{target: v, kind: full, err: err}
}

// wait waits until the first of the blockers ends. If that was a gate, it returns an
// attempt. If it returns neither an attempt nor an error, the caller of wait tries all
// targets again.
//
// The caller of wait has already tried the rejected keys of providers with attempts left.
// Before it waits, wait tries the rejected keys of the provider that was asked for: that
// provider's response is worth more than a wait for another provider.
func (w *waiter) wait(ctx context.Context) (*attempt, error) {
	if a := w.tryRejectedKeys(ctx, func(b *blocker) bool { return b.target.p == w.request.asked }); a != nil {
		return a, nil
	}
	first, again, err := w.firstToPass()
	if again || err != nil {
		return nil, err
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
	return w.waitAtGate(ctx, first.target)
}

// firstToPass returns the blocker that ends first; nil if none ends by itself. again reports
// whether a provider has changed, so that all targets must be tried again.
func (w *waiter) firstToPass() (first *blocker, again bool, err error) {
	for i := range w.met {
		switch b := &w.met[i]; {
		case b.kind == changed:
			return nil, true, nil
		case b.kind == full && i == 0:
			return nil, false, w.unavailableProblem() // the provider is up, but has too many requests
		case b.passing() && (first == nil || b.wait < first.wait):
			first = b
		}
	}
	return first, false, nil
}

// waitAtGate waits in the queue of the provider's gate, and returns an attempt, as wait does.
func (w *waiter) waitAtGate(ctx context.Context, target *requestTarget) (*attempt, error) {
	pass, err := w.queue(ctx, target, w.met)
	if err != nil {
		return nil, w.after(blockerOf(target, err))
	}
	if !target.p.override.isOpenTo(w.request.began) {
		target.p.upstream.gate.done(pass, health.Canceled)
		return nil, nil
	}
	a, behind := w.newAttempt(ctx, target, pass)
	if a == nil {
		return nil, w.after(behind)
	}
	return a, nil
}

// tryRejectedKeys returns an attempt with a key that was rejected before, or nil. may
// selects the blockers whose providers it tries. A new blocker replaces the old one.
func (w *waiter) tryRejectedKeys(ctx context.Context, may func(*blocker) bool) *attempt {
	for i := range w.met {
		if w.met[i].kind != keysRejected || !may(&w.met[i]) {
			continue
		}
		a, b := w.try(ctx, w.met[i].target, true)
		if a != nil {
			return a
		}
		w.met[i] = *b
	}
	return nil
}

// anyOf selects all blockers, for tryRejectedKeys.
func anyOf(*blocker) bool { return true }

// after returns the error for a blocker that was found after a wait; nil means to
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

// watch returns a context that also ends when something changes at one of the
// providers that the request may go to. at is the provider at whose gate it waits, or nil.
func (t *targetPicker) watch(ctx context.Context, at *requestTarget) (own context.Context, wake, stop func()) {
	own, cancel := context.WithCancelCause(ctx)
	wake = func() { cancel(errWake) }
	var remove []func()
	for i := range t.targets {
		v := &t.targets[i]
		w := &subscriber{here: v == at, choices: len(t.targets) > 1, wake: wake}
		remove = append(remove, v.p.upstream.subscribers.add(w))
	}
	return own, wake, func() {
		cancel(nil)
		for _, f := range remove {
			f()
		}
	}
}

// queue waits at the gate of a provider. It returns errWake if another provider can take
// the request first. met has the blockers of the other providers.
func (t *targetPicker) queue(ctx context.Context, v *requestTarget, met []blocker) (health.Pass, error) {
	began := clock.Now()
	ctx, wake, stop := t.watch(ctx, v)
	defer stop()
	for _, b := range met {
		if b.target == v {
			continue
		}
		if b.target.p.ready(t.request) && b.kind != noOther && b.kind != full {
			return health.Pass{}, errWake // the change came before the watch began
		}
		if b.kind == keysThrottled {
			timer := time.AfterFunc(b.wait, wake)
			defer timer.Stop()
		}
	}
	step := t.request.startWait(WaitGate, v.p)
	pass, err := v.p.upstream.gate.wait(ctx)
	t.request.endWait(WaitGate, step, began)
	if err != nil && errors.Is(context.Cause(ctx), errWake) {
		return pass, errWake
	}
	return pass, err
}

// sleep waits until a key may be used again, plus a random time, so that not all waiting
// requests are sent at the same moment. It ends early if a probe is due.
func (w *waiter) sleep(ctx context.Context, b *blocker) error {
	p := b.target.p
	if p.upstream.queued() >= p.spec.Queue {
		b.kind, b.err = full, limit.ErrQueueFull
		return w.rejectedProblem(b)
	}
	began := clock.Now()
	ctx, _, stop := w.watch(ctx, nil)
	defer stop()
	if _, next := p.keys.waitLeft(b.of); next == 0 || !p.override.isOpenTo(w.request.began) {
		return nil // the change came before the watch began
	}
	p.upstream.countWaiting(w.request.class, 1)
	defer p.upstream.countWaiting(w.request.class, -1)
	step := w.request.startWait(WaitKey, p)
	defer func() { w.request.endWait(WaitKey, step, began) }()
	spread := min(b.wait/5, 30*time.Second)
	if b.next < b.wait {
		spread = 0 // only one request may go as a probe
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

// byHandFor is the Retry-After of a provider that an operator has closed, because it is
// not known when the operator will open it.
const byHandFor = 5 * time.Second

// waitTooLongProblem returns the problem for a request whose providers are not back in
// time.
func (w *waiter) waitTooLongProblem(b *blocker) *problem {
	if !inTime(w.request.caller, b.wait) {
		w.request.asked.stats.late.Add(1)
	}
	status, code, after := http.StatusServiceUnavailable, codeDown, b.wait
	if b.kind != down {
		code, after = codeCooling, b.next
		if why := b.target.p.keys.blockReasons(b.of); why.throttled() {
			status = http.StatusTooManyRequests
		}
	}
	p := w.request.newProblem(status, code, after, w.describe(w.met))
	p.later.After = b.wait // the full wait, because a caller that retries has a limited number of attempts
	return p
}

// unavailableProblem returns the problem for a request that no provider can take, even
// after a wait.
func (w *waiter) unavailableProblem() error {
	for i := range w.met {
		if w.met[i].err != nil {
			return w.rejectedProblem(&w.met[i])
		}
	}
	for _, b := range w.met {
		if b.kind == forbidden && b.target.p == w.request.asked {
			code := codeDraining
			if b.mode == openedByHand {
				code = codeOpened
			}
			return w.request.newProblem(http.StatusServiceUnavailable, code, byHandFor, w.describe(w.met))
		}
	}
	return w.request.newProblem(http.StatusServiceUnavailable, codeCooling, 0, w.describe(w.met))
}

// rejectedProblem returns the problem for a request that a gate or a limit has rejected.
func (w *waiter) rejectedProblem(b *blocker) error {
	shut, _ := errors.AsType[*health.ClosedError](b.err)
	rate, _ := errors.AsType[*limit.RateError](b.err)
	switch {
	case shut != nil:
		w.request.asked.stats.late.Add(1)
		after := shut.Next
		if b.target.p.upstream.gate.learned() > 0 {
			after = max(after, shut.Expected)
		}
		return w.request.newProblem(http.StatusServiceUnavailable, codeDown, after, w.describe(w.met))
	case rate != nil && !inTime(w.request.caller, rate.Wait):
		w.request.asked.stats.late.Add(1)
		return w.request.newProblem(http.StatusGatewayTimeout, codeDeadline, rate.Wait, w.describe(w.met)+", and the caller can't wait so long")
	case rate != nil:
		return w.request.newProblem(http.StatusServiceUnavailable, codeRate, rate.Wait, w.describe(w.met))
	case errors.Is(b.err, limit.ErrQueueFull), errors.Is(b.err, limit.ErrShed):
		return w.request.newProblem(http.StatusServiceUnavailable, codeQueue, time.Second, w.describe(w.met))
	}
	return b.err // the error of the context
}

// gateEvent is a change that may wake waiting requests.
type gateEvent uint8

const (
	reopened    gateEvent = iota // wakes requests that wait for another provider
	closedAgain                  // wakes requests that wait here and have another provider
	overridden                   // wakes all requests
)

// subscribers are the requests that wait for a change at a provider.
type subscribers struct {
	mu  sync.Mutex
	all map[*subscriber]struct{}
}

// subscriber is a waiting request.
type subscriber struct {
	here    bool // waits at the gate of this provider
	choices bool // may go to another provider
	wake    func()
}

// add adds a subscriber, and returns the function that removes it.
func (s *subscribers) add(one *subscriber) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.all, one, struct{}{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, one)
	}
}

func (s *subscribers) wake(n gateEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.all {
		if n == overridden || n == reopened && !one.here || n == closedAgain && one.here && one.choices {
			one.wake()
		}
	}
}
