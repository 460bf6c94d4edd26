package gateway

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// request is a request under way: the providers that it was sent to, and why it left
// them.
type request struct {
	g             *Gateway
	asked         *provider
	path          string // below the provider, as it was written
	query         string
	route         string
	callerRetries bool // the caller retries, so that the gateway does not wait
	class         limit.Priority
	began         time.Time
	caller        context.Context
	deadline      *callerDeadline // the caller's; nil means none
	host          string          // the address that the caller used
	secure        bool            // the caller uses TLS
	withheld      bool            // a fallback is not asked, because of the query

	upload  upload
	watched watchedBody            // the body that the caller sends
	model   atomic.Pointer[string] // which the request is for; nil means that it was not read
	body    atomic.Pointer[error]  // how reading the request's body failed
	sent    atomic.Int32           // attempts
	cut     atomic.Bool            // the answer broke off after the caller had seen some of it
	notKept atomic.Bool            // the body was too long to be sent again

	mu          sync.Mutex
	targets     []requestTarget // one for each of asked.order that can be sent the request
	room        [2]requestTarget
	at          *requestTarget // where the last attempt went; nil before the first
	why         string         // why the next one goes to another target
	h2c         []*attempt     // under way to providers with Spec.H2C
	last        *attempt       // the one that was judged last, or brought the answer
	hasResponse bool           // one of them brought the answer
	lastOutcome retry.Outcome  // of the last failure, for a caller that retries

	keptResponse atomic.Pointer[keptResponse] // of the provider that was asked for, when it was left

	// What became of it.
	answered bool   // the caller gets an answer of the provider's
	whole    bool   // and got all of it
	over     bool   // nothing more will come of it
	gaveUp   string // why it does not get a better one; "" means that it is the best
}

// requestTarget is the state of a request at one provider. The request's lock guards it.
type requestTarget struct {
	p             *provider
	made          int          // attempts, without those after which another key is asked at once
	left          bool         // another one took over
	failure       error        // how the last attempt failed
	rejectedCall  *health.Call // the last call, if its key was rejected or throttled
	rejectedKeys  []*key       // by this request
	forbiddenKeys []*key       // answered with 403: rejected only if another key is accepted
	began         bool         // account is open
	granted       bool         // it has paid for a retry that has not started
	account       limit.Call   // of retries
	success       bool         // the caller's response came from here
}

type requestKey struct{}

// requestFrom returns the request that the context belongs to, or nil.
func requestFrom(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// newRequest begins a request.
func (g *Gateway) newRequest(ctx context.Context, p *provider, method, path, query string, class limit.Priority) *request {
	r := &request{
		g: g, asked: p, path: path, query: query, class: class,
		route: routeOf(method, path), began: time.Now(), caller: ctx,
	}
	if r.targets = r.room[:]; len(p.order) > len(r.room) {
		r.targets = make([]requestTarget, len(p.order))
	}
	n := 0
	for _, o := range p.order {
		if o != p && query != "" {
			if _, ok := o.forward.queryFor(query); !ok {
				r.withheld = true
				continue
			}
		}
		r.targets[n].p = o
		n++
	}
	r.targets = r.targets[:n]
	p.stats.requests.Add(1)
	return r
}

// context returns the context under which the request's attempts are made.
func (r *request) context() context.Context {
	ctx := r.caller
	if r.class != limit.Normal {
		ctx = limit.WithPriority(ctx, r.class)
	}
	return context.WithValue(ctx, requestKey{}, r)
}

// rankedTargets returns the targets of the next attempt, the best first: providers in
// the order of the configuration, then those that have had their attempts, the least
// asked first. The first of them have attempts left; fresh is their number. nil means
// the order of the configuration: nothing has been sent, or there is one provider.
func (r *request) rankedTargets() (list []*requestTarget, fresh int) {
	if r.sent.Load() == 0 {
		return nil, len(r.targets)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.targets) == 1 {
		if r.attemptsUsed(&r.targets[0]) == 0 {
			fresh = 1
		}
		return nil, fresh
	}
	list = make([]*requestTarget, len(r.targets))
	for i := range r.targets {
		if list[i] = &r.targets[i]; r.attemptsUsed(list[i]) == 0 {
			fresh++
		}
	}
	slices.SortStableFunc(list, func(a, b *requestTarget) int { return r.attemptsUsed(a) - r.attemptsUsed(b) })
	return list, fresh
}

// attemptsUsed returns the number of attempts if the provider has had all of them, else
// 0.
func (r *request) attemptsUsed(v *requestTarget) int {
	if v.left || v.made >= r.attemptsPerProvider() {
		return max(v.made, 1)
	}
	return 0
}

// attemptsPerProvider returns how many attempts a provider has before another one takes
// over. If the caller retries, it is 1: the gateway does not wait between attempts then.
func (r *request) attemptsPerProvider() int {
	if r.callerRetries {
		return 1
	}
	return r.asked.spec.FallbackAfter
}

// hasUsableKey reports whether the provider has a key, other than that one, that may
// take the request now or later: one that was not rejected. It needs the lock.
func (r *request) hasUsableKey(v *requestTarget, but *key) bool {
	return v.p.override.isOpenTo(r.began) && slices.ContainsFunc(v.p.keys.keys, func(k *key) bool {
		return k != but && !k.isRejected() && !slices.Contains(v.rejectedKeys, k)
	})
}

// ready reports whether the provider would take the request at once.
func (r *request) ready(v *requestTarget) bool {
	_, next := v.p.keys.left(r.scope())
	return next == 0 && r.isOpen(v)
}

// readyWithRejectedKey reports whether the provider would take the request at once with
// a key that was rejected before, but not for this request. It needs the lock.
func (r *request) readyWithRejectedKey(v *requestTarget) bool {
	return len(v.rejectedKeys) == 0 && v.p.keys.onlyRejected(r.scope()) && r.isOpen(v)
}

// isOpen reports whether neither an operator's override nor the gate keeps the request
// from the provider.
func (r *request) isOpen(v *requestTarget) bool {
	if !v.p.override.isOpenTo(r.began) {
		return false
	}
	found, _ := v.p.gate.state()
	return found != gateClosed
}

// otherProviderReady reports whether another provider, one that has attempts left, would
// take the request at once. It needs the lock.
func (r *request) otherProviderReady(v *requestTarget) bool {
	for i := range r.targets {
		if o := &r.targets[i]; o != v && r.attemptsUsed(o) == 0 && (r.ready(o) || r.readyWithRejectedKey(o)) {
			return true
		}
	}
	return false
}

// soonestKey returns how long it is until a key of any provider need not wait any more.
func (r *request) soonestKey() time.Duration {
	wait := time.Duration(math.MaxInt64)
	for i := range r.targets {
		if v := &r.targets[i]; v.p.override.isOpenTo(r.began) {
			left, _ := v.p.keys.left(r.scope())
			wait = min(wait, left)
		}
	}
	return wait
}

// callerGone reports whether the caller has disconnected, or has no time left.
func (r *request) callerGone() bool {
	err := r.caller.Err()
	return err != nil && !(r.upload.stopped.Load() && errors.Is(err, context.Canceled))
}

// usesH2C reports whether the request goes to a provider that speaks HTTP/2 without TLS.
func (r *request) usesH2C(req *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.h2c, func(a *attempt) bool { return a.req == req })
}

// closeAccounts ends the accounts with the retry budgets.
func (r *request) closeAccounts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.keptResponse.Load().close()
	for i := range r.targets {
		v := &r.targets[i]
		if v.granted {
			v.account.Cancel()
		}
		if v.began {
			v.account.End(v.success && r.answered)
		}
	}
}

// recordFailure records how the attempt failed.
func (r *request) recordFailure(a *attempt, failure error, o retry.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := a.target
	if errors.Is(failure, retryhttp.ErrBody) && r.notKept.CompareAndSwap(false, true) {
		r.asked.stats.notKept.Add(1)
	}
	if v.began && !(a.result.kind == neutral && shortage.Is(failure)) {
		v.account.Fail()
	}
	v.failure, r.lastOutcome = failure, o
	if !r.hasResponse {
		r.last = a
	}
	if !o.Final {
		r.recordRejection(a)
	}
}

// recordSuccess records that the attempt brought a response that no retry would change.
func (r *request) recordSuccess(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasResponse {
		r.last = a
	}
	a.target.success, r.hasResponse = a.result.kind == succeeded, true
	if a.result.kind != succeeded {
		r.recordRejection(a)
		return
	}
	// Another key was let in, so it was the keys that were at fault before.
	for _, k := range a.target.forbiddenKeys {
		if k != a.key {
			a.p.keys.avoid(k, avoidRejected, "403")
		}
	}
	a.target.forbiddenKeys = nil
}

// recordRejection records that the attempt's key was rejected. It needs the lock.
func (r *request) recordRejection(a *attempt) {
	v := a.target
	if a.result.kind != keyRejected || slices.Contains(v.rejectedKeys, a.key) {
		return
	}
	v.rejectedKeys = append(v.rejectedKeys, a.key)
	if a.result.code == http.StatusForbidden {
		v.forbiddenKeys = append(v.forbiddenKeys, a.key)
	}
}

// hasOtherTarget reports whether there is another target for the request of the attempt:
// now or, if the gateway waits for the caller, later.
func (r *request) hasOtherTarget(a *attempt) bool {
	if a.p.keys.another(&a.call, r.scope()) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.otherProviderReady(a.target) {
		return true
	}
	return !r.callerRetries && (r.hasUsableKey(a.target, a.key) || a.p != r.asked && r.hasUsableKey(&r.targets[0], nil))
}

// begin counts the attempt, and opens the request's account with the retry budget of the
// provider.
func (r *request) begin(a *attempt) {
	v, p := a.target, a.p
	r.mu.Lock()
	from, why := r.at, r.why
	if from == nil && p != r.asked {
		from, why = &r.targets[0], r.asked.blockedBecause(r.began, r.scope())
	}
	v.made++
	if !v.began {
		v.began = true
		if b := p.budgets.of(r.route); b != nil {
			v.account = b.Begin()
		}
	}
	v.granted = false
	r.at, r.why = v, ""
	a.flying.Store(true)
	if p.spec.H2C {
		r.h2c = append(slices.DeleteFunc(r.h2c, func(a *attempt) bool { return !a.flying.Load() }), a)
	}
	r.mu.Unlock()

	p.inFlight.Add(1)
	p.stats.attempts.Add(1)
	r.asked.stats.sent.Add(1)
	r.sent.Add(1)
	if a.pass.Probe() {
		p.stats.probes.Add(1)
	}
	if from != nil && from != v {
		r.recordFailover(from.p, p, why)
	}
}

// recordFailover records that another provider takes the request over. It counts for the
// provider that was asked for, whichever the request leaves.
func (r *request) recordFailover(from, to *provider, why string) {
	now := time.Now()
	own := r.asked
	own.stats.moved(from.spec.Name, to.spec.Name)
	if to != own { // it may be back where it began
		own.stats.failovers.Add(1)
	}
	own.history.failedOver(Failover{Time: now, From: from.spec.Name, To: to.spec.Name, Why: why})
	r.g.emit(retry.Event{
		Kind: retry.FailedOver, Time: now, Name: r.asked.title(),
		Note: from.spec.Name + " → " + to.spec.Name + ": " + why,
	}, slog.String("request", r.g.redact(r.route)))
}
