package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// targetPicker decides where the attempts of a request go: to which provider, and with
// which of its keys.
type targetPicker struct {
	request  *request
	sent     atomic.Int32 // number of attempts
	withheld []withheld   // fallbacks that are excluded because they must not get the query

	mu          sync.Mutex
	targets     []requestTarget  // one for each provider that may get the request
	room        [2]requestTarget // memory for targets, if there are at most two
	at          *requestTarget   // target of the last attempt; nil before the first
	why         string           // why the next attempt goes to another target
	h2c         []*attempt       // attempts in flight to providers with Spec.H2C
	lastOutcome retry.Outcome    // outcome of the last failure, for a caller that retries
	notKept     bool             // the body was too long to be stored and sent again
	inFlight    int              // attempts that are not judged yet
}

// requestTarget is the state of a request at one provider. The picker's lock guards it.
type requestTarget struct {
	p             *provider
	made          int          // attempts, without those that continue with another key at once
	abandoned     bool         // the request has moved to another provider
	failure       error        // error of the last attempt
	refusedCall   *health.Call // the last call, if its key was rejected or throttled
	rejectedKeys  []*key       // keys that were rejected for this request
	forbiddenKeys []*key       // keys that got a 403; they count as rejected only if another key is accepted
	began         bool         // budget is set
	granted       bool         // the budget has allowed a retry that has not started
	budget        limit.Call   // the request's use of the provider's retry budget
	success       bool         // the caller's response came from this provider
}

// withheld is a fallback that must not get the query, because of the parameter unknown.
type withheld struct {
	p       *provider
	unknown string
}

// init sets the targets: the provider that the caller asked for and its fallbacks, except
// for those that must not get the query.
func (t *targetPicker) init(r *request) {
	t.request = r
	t.targets = slices.Grow(t.room[:0], len(r.asked.order))
	for _, p := range r.asked.order {
		if p != r.asked && r.query != "" {
			if _, unknown := p.forward.queryFor(r.query); unknown != "" {
				t.withheld = append(t.withheld, withheld{p, unknown})
				continue
			}
		}
		t.targets = append(t.targets, requestTarget{p: p})
	}
}

// pick returns the next attempt of the request. It waits until a provider can take the
// request.
func (t *targetPicker) pick(ctx context.Context, req *http.Request) (*attempt, error) {
	if req.Body != nil && req.GetBody == nil {
		record(req)
	}
	for {
		if t.needsModel() {
			t.request.readModel(req)
		}
		list, fresh := t.ranked()
		w := waiter{targetPicker: t}
		for i := range t.targets {
			if i == fresh { // all targets from here on have used up their attempts
				if a := w.tryRejectedKeys(ctx, anyOf); a != nil {
					return a, nil
				}
			}
			v := &t.targets[i]
			if list != nil {
				v = list[i]
			}
			a, b := t.try(ctx, v, false)
			if a != nil {
				return a, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			w.met = append(w.met, *b)
		}
		if fresh == len(t.targets) {
			if a := w.tryRejectedKeys(ctx, anyOf); a != nil {
				return a, nil
			}
		}
		if a, err := w.wait(ctx); a != nil || err != nil {
			return a, err
		}
	}
}

// needsModel reports whether the model must be read: a provider currently throttles
// the request's route, perhaps only for some models.
func (t *targetPicker) needsModel() bool {
	if t.request.model.Load() != nil {
		return false
	}
	for i := range t.targets {
		if t.targets[i].p.keys.throttles.hasRoute(t.request.route) {
			return true
		}
	}
	return false
}

// ranked returns the targets for the next attempt, the best first: providers with attempts
// left in the order of the configuration, then the others, the least used first. fresh is
// the number of providers with attempts left. A nil list means the order of the
// configuration, because nothing has been sent.
func (t *targetPicker) ranked() (list []*requestTarget, fresh int) {
	if t.sent.Load() == 0 {
		return nil, len(t.targets)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list = make([]*requestTarget, len(t.targets))
	for i := range t.targets {
		if list[i] = &t.targets[i]; t.attemptsUsed(list[i]) == 0 {
			fresh++
		}
	}
	slices.SortStableFunc(list, func(a, b *requestTarget) int { return t.attemptsUsed(a) - t.attemptsUsed(b) })
	return list, fresh
}

// attemptsUsed returns the number of attempts if the provider has used up its attempts,
// else 0.
func (t *targetPicker) attemptsUsed(v *requestTarget) int {
	if v.abandoned || v.made >= attemptsPerProvider(t.request) {
		return max(v.made, 1)
	}
	return 0
}

// attemptsPerProvider returns how many attempts a provider gets before another one takes
// over. It is 1 if the caller retries, because the gateway then does not wait between
// attempts.
func attemptsPerProvider(r *request) int {
	if r.retries {
		return 1
	}
	return r.asked.spec.FallbackAfter
}

// try returns an attempt at a provider that can take the request now, or the blocker. It
// waits only in the queues of a provider that is up: for its limits, and for its gate while
// that lets in waiting requests one by one. If last is true, it may use a key that was
// rejected.
func (t *targetPicker) try(ctx context.Context, v *requestTarget, last bool) (*attempt, *blocker) {
	p := v.p
	if !p.override.isOpenTo(t.request.began) {
		return nil, forbiddenBlocker(v)
	}
	if wait, after := p.keys.waitLeft(t.request.scope()); after > 0 && !last {
		b := t.keysBlocker(v, wait, after)
		if found, next := p.upstream.gate.state(); b.kind == keysRejected && found == gateClosed {
			b.kind, b.wait = down, next // the gate blocks all keys
		}
		return nil, b
	}
	pass, found, next := p.upstream.gate.try(ctx)
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
	return t.newAttempt(ctx, v, pass)
}

// newAttempt returns an attempt that has passed the gate and acquires the rest, or
// the blocker. If all keys have been rejected, it uses one of them; see pickKey.
func (t *targetPicker) newAttempt(ctx context.Context, v *requestTarget, pass health.Pass) (*attempt, *blocker) {
	a := &attempt{request: t.request, target: v, p: v.p, pass: pass}
	if b := a.acquire(ctx); b != nil {
		a.cancel()
		return nil, b
	}
	return a, nil
}

// keysBlocker returns the blocker of a provider whose keys are all blocked. If this
// provider has already rejected the request, rejected keys are not tried again.
func (t *targetPicker) keysBlocker(v *requestTarget, wait, next time.Duration) *blocker {
	b := &blocker{target: v, kind: keysThrottled, wait: wait, next: next, of: t.request.scope()}
	t.mu.Lock()
	fresh := len(v.rejectedKeys) == 0
	t.mu.Unlock()
	if fresh && v.p.keys.onlyRejected(b.of) {
		b.kind = keysRejected
	}
	return b
}

// refusedCall returns the last call to the target if its key was rejected or throttled,
// else nil.
func (t *targetPicker) refusedCall(v *requestTarget) *health.Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return v.refusedCall
}

// begin counts the attempt. At the first attempt at a provider, it also registers the
// request with the provider's retry budget.
func (t *targetPicker) begin(a *attempt) {
	r, v, p := t.request, a.target, a.p
	t.mu.Lock()
	from, why := t.at, t.why
	if from == nil && p != r.asked {
		from, why = &t.targets[0], r.asked.blockedBecause(r.began, r.scope())
	}
	v.made++
	if !v.began {
		v.began = true
		if b := p.budgets.of(r.route); b != nil {
			v.budget = b.Begin()
		}
	}
	v.granted = false
	t.at, t.why = v, ""
	a.hedge = t.inFlight > 0
	t.inFlight++
	if p.spec.H2C {
		t.h2c = append(slices.DeleteFunc(t.h2c, func(a *attempt) bool { return !a.flying.Load() }), a)
	}
	t.mu.Unlock()

	p.stats.attempts.Add(1)
	r.asked.stats.sent.Add(1)
	t.sent.Add(1)
	if a.pass.Probe() {
		p.stats.probes.Add(1)
	}
	if from != nil && from != v {
		t.recordFailover(from.p, p, why)
	}
}

// usesH2C reports whether the request goes to a provider that uses HTTP/2 without TLS.
func (t *targetPicker) usesH2C(req *http.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.h2c, func(a *attempt) bool { return a.req == req })
}

// recordFailover records that the request moves to another provider. It counts for the
// provider that the caller asked for, whichever provider the request leaves.
func (t *targetPicker) recordFailover(from, to *provider, why string) {
	r, now := t.request, time.Now()
	own := r.asked
	own.stats.moved(from.spec.Name, to.spec.Name)
	if to != own { // the request may move back to the provider that was asked for
		own.stats.failovers.Add(1)
	}
	r.recordFailover(from, to, why)
	own.upstream.history.failedOver(Failover{Time: now, From: from.spec.Name, To: to.spec.Name, Why: why})
	r.g.emit(retry.Event{
		Kind: retry.FailedOver, Time: now, Name: own.title(), Call: r.call,
		Note: from.spec.Name + " → " + to.spec.Name + ": " + why,
	}, slog.String("request", r.g.redact(r.route)))
}

// recordFailure records the failure of the attempt.
func (t *targetPicker) recordFailure(a *attempt, failure error, o retry.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := a.target
	t.inFlight--
	if errors.Is(failure, retryhttp.ErrBody) && !t.notKept {
		t.notKept = true
		t.request.asked.stats.notKept.Add(1)
	}
	if v.began && !(a.result.kind == neutral && shortage.Is(failure)) {
		v.budget.Fail()
	}
	v.failure, t.lastOutcome = failure, o
	if !o.Final {
		recordRejection(a)
	}
}

// recordFinal records that the attempt got a response that no retry would change.
func (t *targetPicker) recordFinal(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := a.target
	t.inFlight--
	if v.success = a.result.kind == succeeded; !v.success {
		recordRejection(a)
		return
	}
	// Another key was accepted, so the earlier 403s were the fault of their keys.
	for _, k := range v.forbiddenKeys {
		if k != a.key {
			a.p.keys.avoid(k, avoidRejected, "403")
		}
	}
	v.forbiddenKeys = nil
}

// recordRejection records that the attempt's key was rejected. The caller holds the mutex of the
// targetPicker.
func recordRejection(a *attempt) {
	v := a.target
	if a.result.kind != keyRejected || slices.Contains(v.rejectedKeys, a.key) {
		return
	}
	v.rejectedKeys = append(v.rejectedKeys, a.key)
	if a.result.code == http.StatusForbidden {
		v.forbiddenKeys = append(v.forbiddenKeys, a.key)
	}
}

// closeBudgets tells the retry budgets that the request has ended. answered means that the
// caller got a response.
func (t *targetPicker) closeBudgets(answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.targets {
		v := &t.targets[i]
		if v.granted {
			v.budget.Cancel()
		}
		if v.began {
			v.budget.End(v.success && answered)
		}
	}
}

// blocker is the reason why a provider can't take a request now.
type blocker struct {
	target *requestTarget
	kind   kind
	wait   time.Duration // how long it lasts, if it ends by itself
	next   time.Duration // of keysThrottled: how long until one request may be sent, perhaps as a probe
	of     scope         // scope of keysThrottled and keysRejected
	err    error         // error of a limit or a gate
	mode   mode          // of forbidden: the mode that the operator has set
}

type kind uint8

const (
	forbidden     kind = iota // an operator has closed the provider
	noOther                   // the request has tried all its keys
	keysThrottled             // all its keys have to wait
	keysRejected              // all its keys were rejected; they are tried if no other provider is ready
	down                      // its gate is closed
	full                      // a gate or a limit rejects the request
	changed                   // no longer blocked: try again
)

// passing reports whether the blocker ends by itself.
func (b *blocker) passing() bool { return b.kind == keysThrottled || b.kind == down }

// forbiddenBlocker returns the blocker of a provider that an operator has closed.
func forbiddenBlocker(v *requestTarget) *blocker {
	return &blocker{target: v, kind: forbidden, mode: v.p.override.get()}
}

// mode is the state that an operator has set for a provider.
type mode uint8

const (
	automatic mode = iota
	openedByHand
	heldByHand
	draining
)

var modes = map[string]mode{Open: openedByHand, Close: heldByHand, Drain: draining, Reset: automatic}

// override is the mode that an operator has set for a provider, and when. It belongs to
// the provider's name, so it survives reloads.
type override struct {
	isSet atomic.Bool // the mode is not automatic; a fast check for most requests
	mu    sync.Mutex
	mode  mode
	since time.Time
}

func (o *override) get() mode {
	m, _ := o.current()
	return m
}

func (o *override) current() (mode, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mode, o.since
}

func (o *override) set(m mode, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mode != m {
		o.mode, o.since = m, now
		o.isSet.Store(m != automatic)
	}
}

// isOpenTo reports whether a request that began at this time may go to the provider.
func (o *override) isOpenTo(began time.Time) bool {
	if !o.isSet.Load() {
		return true
	}
	switch m, since := o.current(); m {
	case openedByHand:
		return false
	case draining:
		return began.Before(since)
	default:
		return true
	}
}

// apply forces the breaker into the state that the operator has set.
func (o *override) apply(b *breaker.Breaker) error {
	switch o.get() {
	case openedByHand:
		return b.Force(breaker.ForcedOpen)
	case heldByHand:
		return b.Force(breaker.ForcedClosed)
	default:
		if s := b.State(); s == breaker.ForcedOpen || s == breaker.ForcedClosed {
			b.Reset()
		}
		return nil
	}
}
