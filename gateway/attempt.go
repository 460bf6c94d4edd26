package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// router is the [retryhttp.Router] of all providers. It has no state: the state is the
// request in the context.
type router struct{}

// Route implements [retryhttp.Router].
func (router) Route(req *http.Request, _ int) (retryhttp.Attempt, error) {
	r := requestFrom(req.Context())
	if r == nil {
		return nil, retry.Permanent(errors.New("gateway: the request was not sent through the gateway"))
	}
	a, err := r.picker.pick(req.Context(), req)
	if err != nil {
		return nil, err
	}
	a.start(req)
	return a, nil
}

// Next implements [retryhttp.Router]. The runner calls it after each failed round, through
// [retry.WithReview]; see docs/adr/0032.
func (router) Next(_ context.Context, f retryhttp.Failure) retry.Decision {
	a := f.Attempt.(*attempt)
	d := a.request.picker.decide(a, &f)
	if d == tryNow(&f) && a.p == a.request.asked && f.Response != nil {
		a.request.response.keep(a, f.Response)
	}
	return d
}

// attempt is one attempt of a request. It holds the health gate's admission (its pass), a
// slot of the concurrency limit, a key and a permit of the breaker, and reports the result
// to each of them.
type attempt struct {
	request *request
	target  *requestTarget
	p       *provider
	req     *http.Request // the request of this attempt

	key      *key
	call     health.Call
	pass     health.Pass
	permit   breaker.Permit // not set for a probe
	slot     bool           // holds one of the provider's slots
	keyProbe bool           // tests whether its key still has to wait; see throttles
	flying   atomic.Bool    // counted as in flight
	sent     time.Duration  // reading of the clock when the attempt was sent
	upload   time.Duration  // time that the request had waited for the caller's body before this attempt
	result   result
	final    bool          // the caller gets the response of this attempt
	hedge    bool          // began while another attempt of the request was in progress
	answered time.Duration // reading of the clock when the attempt was judged
	step     int           // its step in the timeline of the request; 0 means none
}

// acquire acquires the limits, a key and the breaker's permit, after the gate has admitted
// the attempt. If something blocks the attempt, it returns the blocker, and the caller
// must call cancel to release what was acquired.
func (a *attempt) acquire(ctx context.Context) *blocker {
	p, r := a.p, a.request
	if a.pass.Probe() {
		ctx = limit.WithPriority(ctx, limit.Highest) // all other requests wait for the probe
	}
	slot, waited, err := p.waitForLimits(ctx, r)
	if a.slot = slot; err != nil {
		return &blocker{target: a.target, kind: full, err: err}
	}
	if waited && !a.pass.Probe() {
		// The gate may have closed during the wait. The request then loses the place that
		// it had waited for, like all requests.
		again, found, next := p.upstream.gate.try(ctx)
		if a.pass = again; found != gateOpen {
			return &blocker{target: a.target, kind: down, wait: next}
		}
	}
	if b := a.pickKey(r.picker.refusedCall(a.target)); b != nil {
		return b
	}
	if a.pass.Probe() {
		return nil
	}
	if a.permit, err = p.upstream.gate.breaker.Allow(); err == nil {
		return nil
	}
	if !p.override.isOpenTo(r.began) {
		return forbiddenBlocker(a.target)
	}
	p.upstream.gate.shut("breaker") // the breaker has opened just now
	return &blocker{target: a.target, kind: down}
}

// pickKey chooses the attempt's key, or returns the blocker. If all keys have been rejected,
// it chooses one of them. refused is the last call to the target, if its key was rejected or
// throttled; nil means none.
func (a *attempt) pickKey(refused *health.Call) *blocker {
	pool, s := a.p.keys, a.request.scope()
	var ok bool
	if a.call, a.key, a.keyProbe, ok = pool.pick(refused, false, s); ok {
		return nil
	}
	wait, next := pool.waitLeft(s)
	if next == 0 {
		return &blocker{target: a.target, kind: noOther}
	}
	b := a.request.picker.keysBlocker(a.target, wait, next)
	if b.kind == keysRejected {
		if a.call, a.key, a.keyProbe, ok = pool.pick(nil, true, s); ok {
			return nil
		}
		b.kind = keysThrottled
	}
	return b
}

// cancel releases everything that the attempt has acquired, without sending it.
func (a *attempt) cancel() {
	if a.keyProbe {
		a.p.keys.throttles.giveBack(a.key, a.request.scope())
	}
	a.p.upstream.gate.done(a.pass, health.Canceled)
	a.call.Done(health.Canceled)
	a.release()
}

// start begins the attempt. req is the request of this attempt.
func (a *attempt) start(req *http.Request) {
	a.req = req
	a.flying.Store(true)
	a.p.upstream.countInFlight(1)
	a.request.picker.begin(a)
	a.setTarget()
	a.sent, a.upload = clock.Now(), a.request.upload.waited()
	a.recordStart()
}

// setTarget sets the provider's URL in the attempt's request, and the credentials for the
// provider: the gateway's own, or those of a caller that asked for this provider.
func (a *attempt) setTarget() {
	p, r, req := a.p, a.request, a.req
	query := r.query
	switch {
	case p != r.asked:
		p.forward.limit(req)
		req.Header.Del(r.asked.spec.AuthHeader)
		req.Header.Del(p.spec.AuthHeader)
		query, _ = p.forward.queryFor(query) // none is unknown: the picker excludes providers that must not get the query
	case p.keys.ours:
		query = withoutCredentials(req, &p.spec, query)
	}
	if !a.key.value.IsZero() {
		value := a.key.value.Reveal()
		if p.spec.AuthScheme != "" {
			value = p.spec.AuthScheme + " " + value
		}
		req.Header.Set(p.spec.AuthHeader, value)
	}
	for _, h := range p.spec.Headers {
		req.Header.Set(h.Name, h.Value.Reveal())
	}
	if req.Host = ""; p != r.asked || query != r.query {
		req.URL = below(p.spec.BaseURL, r.path, query) // otherwise the URL is already right
	}
}

// withoutCredentials removes the caller's credentials from a request to a provider for
// which we have a key. It returns the query without them.
func withoutCredentials(req *http.Request, s *Spec, query string) string {
	for name := range req.Header {
		if isCredential(name) && !isSession(name) {
			delete(req.Header, name)
		}
	}
	keepTrailers(req, func(name string) bool { return !isCredential(name) })
	req.Header.Del(s.AuthHeader)
	if _, ok := req.Header[protocolHeader]; ok {
		withoutSecretProtocols(req.Header)
	}
	return withoutKey(query)
}

// isCredential reports whether the header probably has a credential. It is called for
// every header of a request to a provider for which the gateway has a key. For
// fallbacks, forward.go decides which headers they get.
func isCredential(name string) bool { return !commonHeaders[name] && secret.IsHeader(name) }

// commonHeaders are frequent headers that are no credentials, for a fast check.
var commonHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Connection": true, "Content-Length": true, "Content-Type": true,
	"User-Agent": true, "X-Forwarded-For": true, "Idempotency-Key": true, "Anthropic-Version": true, "Anthropic-Beta": true,
	"X-Tideover-Attempt": true, "X-Tideover-Layer": true, "X-Request-Timeout-Ms": true, "X-Stainless-Timeout": true,
	"X-Stainless-Lang": true, "X-Stainless-Arch": true, "X-Stainless-Os": true, "X-Stainless-Runtime": true,
	"X-Stainless-Runtime-Version": true, "X-Stainless-Package-Version": true, "X-Stainless-Retry-Count": true,
}

// isSession reports whether the header identifies a session of the caller with the
// provider. The provider that the caller asked for may get it.
func isSession(name string) bool { return name == "Mcp-Session-Id" }

// withoutKey returns the query without the parameters in which APIs accept a key. The
// other parameters stay byte for byte as they were.
func withoutKey(query string) string {
	if query == "" {
		return query
	}
	if lower := strings.ToLower(query); !strings.Contains(lower, "key") && !strings.Contains(lower, "token") && !strings.Contains(query, "%") {
		return query
	}
	var b strings.Builder
	for rest := query; len(rest) > 0; {
		part, sep := rest, ""
		if end := strings.IndexAny(rest, "&;"); end >= 0 { // some servers treat ; as &
			part, sep = rest[:end], rest[end:end+1]
		}
		rest = rest[len(part)+len(sep):]
		if name, _, _ := strings.Cut(part, "="); !secret.IsKeyQuery(unescaped(name)) {
			b.WriteString(part + sep)
		}
	}
	if b.Len() == len(query) { // it has no such parameter
		return query
	}
	return strings.TrimRight(b.String(), "&;")
}

// uploadTime returns how long the attempt has waited for the caller's body.
func (a *attempt) uploadTime() time.Duration { return a.request.upload.waited() - a.upload }

// slowUpload reports whether the attempt has waited for the caller's body for most of
// its time, and the body is still incomplete.
func (a *attempt) slowUpload() bool {
	r := a.request
	return r.upload.writer != nil && !r.upload.ended.Load() && 2*a.uploadTime() > clock.Now()-a.sent
}

// release releases the attempt's slot, and no longer counts the attempt as in flight.
func (a *attempt) release() {
	if a.slot {
		a.slot = false
		a.p.upstream.slots.Release()
	}
	if a.flying.CompareAndSwap(true, false) {
		a.p.upstream.countInFlight(-1)
	}
}

// Rejected implements [retryhttp.Attempt]. The caller does not get a response that rejects
// one of our keys while another key or another provider is available.
func (a *attempt) Rejected(resp *http.Response) bool {
	return a.key.rejectedBy(resp.StatusCode) && a.request.picker.hasOther(a)
}

// Done implements [retryhttp.Attempt].
func (a *attempt) Done(resp *http.Response, failure error, o retry.Outcome) {
	if failure == nil && resp != nil && resp.StatusCode < http.StatusBadRequest {
		a.result = result{kind: succeeded, code: resp.StatusCode}
	} else {
		a.result = a.classify(resp, failure, o)
	}
	a.report(resp)
	a.recordEnd(failure)
	if failure == nil {
		a.final = true
		a.request.picker.recordFinal(a)
		a.request.response.judged(a, true)
		return
	}
	a.release() // others may use the slot during the wait
	a.request.picker.recordFailure(a, failure, o)
	a.request.response.judged(a, false)
}

// Interrupt implements [retryhttp.Interruptible].
func (a *attempt) Interrupt() { a.request.upload.stop() }

// Closed implements [retryhttp.Attempt].
func (a *attempt) Closed(err error) {
	a.release()
	if a.result.kind != succeeded {
		return
	}
	if err == nil || !a.final || a.request.callerGone() {
		a.call.Done(health.Succeeded)
		return
	}
	a.request.response.breakOff()
	a.recordCut(err)
	a.call.Done(health.Failed)
	a.p.upstream.countError(0)
	a.permit.Done(breaker.Failure) // in addition to the success that was reported when the response began
}

// report reports the result to the key, the limits, the breaker and the gate of the
// provider.
func (a *attempt) report(resp *http.Response) {
	p, res := a.p, &a.result
	a.answered = clock.Now()
	now := a.answered - a.uploadTime()
	if resp != nil {
		a.reportResponse(resp, now)
	}
	if res.kind != neutral {
		p.upstream.reportRate(res.kind == keyThrottled)
	}
	if (res.kind == succeeded || res.kind == keyThrottled) && p.keys.readmit(a.key) {
		p.upstream.subscribers.wake(reopened)
	}
	if a.keyProbe {
		a.reportKeyProbe()
	}
	switch res.kind {
	case neutral:
		a.key.stats.by[classCanceled].Add(1)
		a.reportHealth(breaker.Canceled, health.Canceled)
		a.call.Done(health.Canceled)
	case succeeded:
		p.upstream.succeeded(now - a.sent)
		a.call.FirstByteAt(now)
		a.reportHealth(breaker.Success, health.Succeeded)
	case failed:
		if resp == nil {
			a.key.stats.by[classError].Add(1)
		}
		// The gateway probes a provider that is down at least once a minute, even if one of
		// its paths asks for a longer wait.
		wait := min(res.wait, probeEvery)
		p.upstream.countError(wait)
		a.call.Done(health.Failed)
		a.reportHealth(breaker.Failure, health.FailedFor(wait))
	case keyThrottled:
		p.stats.throttled.Add(1)
		a.call.Done(health.RefusedFor(0)) // the pool still offers the key: throttles blocks it for the scope only
		a.reportThrottled(resp)
	case keyRejected:
		a.reportRejected(resp)
	}
}

// reportResponse reports what a response with any status says about the rate limits, the speed and
// the account of the provider.
func (a *attempt) reportResponse(resp *http.Response, now time.Duration) {
	a.p.upstream.rateLimits.read(a.key.name, resp.Header, time.Now())
	a.p.stats.ttfb.observe(now - a.sent)
	a.key.stats.by[classOf(a.result.code)].Add(1)
	if account := a.key.account; account != nil {
		account.report(a, resp)
	}
}

// reportRejected reports a key that was rejected.
func (a *attempt) reportRejected(resp *http.Response) {
	res := &a.result
	if res.code == http.StatusTooManyRequests {
		a.p.stats.throttled.Add(1)
	}
	a.call.Done(health.RefusedFor(0))
	switch {
	case res.code == http.StatusForbidden: // perhaps the key is good, and only this resource is forbidden
	case res.closesScope:
		a.p.keys.throttles.closeScope(a, resp)
	default:
		a.p.keys.avoid(a.key, res.wait, res.why)
	}
	a.reportHealth(breaker.Canceled, health.Succeeded) // the server works
}

// reportThrottled reports that too many requests were sent with the key. A throttle of
// a caller's own key concerns that caller only. A provider that throttles is up: the
// breaker does not count it as a failure, nor does the gate. The exception is a probe with
// a caller's own key, because that key may be throttled while others are not.
func (a *attempt) reportThrottled(resp *http.Response) {
	switch {
	case a.p.keys.ours:
		a.p.upstream.countError(0)
		a.p.keys.throttles.closeScope(a, resp)
		a.reportHealth(breaker.Canceled, health.Succeeded)
	case a.pass.Probe(): // a throttled probe does not show that the provider is up
		a.reportHealth(breaker.Canceled, health.FailedFor(min(a.result.wait, probeEvery)))
	default:
		a.reportHealth(breaker.Canceled, health.Canceled)
	}
}

// reportKeyProbe reports the result of an attempt that was sent before its key's wait was
// over. Another 429 is handled by reportThrottled, or by report if it states a used-up quota.
func (a *attempt) reportKeyProbe() {
	t, s := &a.p.keys.throttles, a.request.scope()
	switch {
	case a.result.kind == neutral:
		t.giveBack(a.key, s)
	case a.result.kind == succeeded && a.result.code < http.StatusBadRequest: // a status from 400 on may come before the provider checks its limits
		if t.open(waiting{a.key, s}) {
			a.p.upstream.subscribers.wake(reopened)
		}
	}
}

// reportHealth reports the result to the breaker and the gate.
func (a *attempt) reportHealth(b breaker.Result, o health.Outcome) {
	back := a.pass.Probe() && o == health.Succeeded
	if back {
		a.p.resetBreaker() // before the gate opens, so that the requests it releases find a closed breaker
	}
	a.p.upstream.gate.done(a.pass, o)
	if d := a.uploadTime(); d > 0 && a.p.spec.Breaker.SlowCall > 0 {
		a.permit.DoneAt(clock.Now()-d, b)
	} else {
		a.permit.Done(b)
	}
	if back {
		a.p.recovered()
	}
}
