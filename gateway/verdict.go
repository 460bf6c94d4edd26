package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// result is the result of an attempt for the provider and the key.
type result struct {
	kind        resultKind
	code        int           // the status, or the one that corresponds to an error event; 0 without an answer
	wait        time.Duration // how long the key or the provider must not be used
	closesScope bool          // the wait applies only to requests of the same route and model
	quotaGone   bool          // quota or credit is used up, so waiting does not help
	why         string        // the reason in a few words
}

type resultKind uint8

const (
	succeeded    resultKind = iota // the provider answered, perhaps with an error of the caller
	neutral                        // no information about the provider: the caller disconnected, its body could not be read, or this machine lacks resources
	failed                         // the provider failed
	keyThrottled                   // too many requests with the key
	keyRejected                    // the key is not accepted, or has no credit
)

// classify returns the result of the attempt. failure is nil if no retry is needed; o is
// the outcome of failure.
func (a *attempt) classify(resp *http.Response, failure error, o retry.Outcome) (res result) {
	status, _ := errors.AsType[*retryhttp.StatusError](failure)
	switch {
	case status != nil:
		res.code = status.Code
	case resp != nil:
		res.code = resp.StatusCode
	}
	res.why = a.reason(failure, res.code)
	switch {
	case resp == nil && a.saysNothing(failure, o, res.why):
		res.kind = neutral
	case resp == nil:
		res.kind = failed
	case res.code == http.StatusTooManyRequests && failure != nil:
		a.throttled(&res, resp, status, o)
	case a.key.rejectedBy(res.code):
		res.rejected(resp)
	case failure != nil && isFailureOfProvider(res.code):
		res.kind, res.wait = failed, o.After
	}
	return res
}

// saysNothing reports whether an attempt without a response says nothing about the provider: the
// caller is gone or too slow, or this machine is short of resources.
func (a *attempt) saysNothing(failure error, o retry.Outcome, why string) bool {
	r := a.request
	return r.callerGone() || r.bodyError() != nil || o.Class == retry.ClassCanceled || errors.Is(failure, context.Canceled) ||
		shortage.Is(failure) || why == whyTimeout && a.slowUpload()
}

// throttled fills in the result of a response with too many requests.
func (a *attempt) throttled(res *result, resp *http.Response, status *retryhttp.StatusError, o retry.Outcome) {
	res.kind, res.wait, res.closesScope = keyThrottled, cmp.Or(o.After, defaultThrottle), true
	if reset, _ := subscriptionReset(resp.Header, time.Now()); reset > res.wait {
		res.wait = reset
	}
	if status != nil && status.Quota != "" {
		res.quotaGone, res.wait, res.closesScope = true, cmp.Or(o.After, avoidUnpaid), o.After > 0
		res.why += " " + status.Quota
		if a.p.keys.ours {
			res.kind = keyRejected // a slower rate does not help
		}
	}
}

// rejected fills in the result of a response that rejects the key.
func (r *result) rejected(resp *http.Response) {
	r.kind, r.wait = keyRejected, avoidRejected
	if r.code == http.StatusPaymentRequired {
		r.wait = avoidUnpaid
	}
	if told, ok := retryhttp.ServerDelay(resp.Header, time.Now()); ok && told > 0 {
		r.wait, r.closesScope = told, true
	}
}

// isFailureOfProvider reports whether a status that a retry may change means that the provider
// failed. The others depend on the request.
func isFailureOfProvider(code int) bool {
	switch code {
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusTooEarly, http.StatusMisdirectedRequest, http.StatusConflict:
		return false
	}
	return true
}

// rejectedBy reports whether the status means that the provider does not accept the key,
// and the key is ours.
func (k *key) rejectedBy(code int) bool {
	rejects := code == http.StatusUnauthorized || code == http.StatusPaymentRequired || code == http.StatusForbidden
	return rejects && !k.value.IsZero()
}

// whyTimeout is the reason of an attempt that took too long.
const whyTimeout = "timeout"

// reason returns in a few words why an attempt failed. Operators and callers see the text,
// so it quotes nothing of the request.
func (a *attempt) reason(failure error, code int) string {
	switch {
	case code != 0:
		return fmt.Sprint(code)
	case failure == nil:
		return ""
	case errors.Is(failure, context.DeadlineExceeded) || timedOut(failure):
		return whyTimeout
	case unreachable(failure):
		return "unreachable"
	default:
		return "connection lost"
	}
}

// unreachable reports whether there was no connection, so that nothing was
// sent: no process listens, the host is unknown, or the certificate is invalid.
func unreachable(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	_, dns := errors.AsType[*net.DNSError](err)
	_, cert := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return dns || cert || record
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// verdict makes the decision about a failed round of a request: one attempt, or two if the
// request is hedged. The caller of its methods holds the picker's lock.
type verdict struct {
	retryhttp.Failure // a copy, because a pointer would move the failure to the heap
	t                 *targetPicker
	a                 *attempt
}

// decide returns the decision about a failed round: try the same provider again after the
// policy's delay, try another of its keys at once, or try another provider at once.
func (t *targetPicker) decide(a *attempt, f *retryhttp.Failure) retry.Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.result.kind == neutral || f.Outcome.Final || f.Outcome.Class >= retry.ClassCanceled {
		return f.Decision
	}
	t.why = a.result.why
	v := verdict{*f, t, a}
	switch a.result.kind {
	case keyThrottled, keyRejected:
		return v.afterRefusal()
	case failed:
		return v.afterFailure()
	default:
		return v.retrySameProvider(f.Outcome)
	}
}

// tryNow is the decision to try another key or provider without a wait.
func tryNow(f *retryhttp.Failure) retry.Decision {
	return retry.Decision{By: retry.BySchedule, Prev: f.State.Prev}
}

// stop is the decision to make no further attempt.
func stop(why retry.Reason) retry.Decision { return retry.Decision{Stop: why} }

// failOver marks the provider as abandoned if another one can take the request at once,
// and reports whether it did.
func (v *verdict) failOver() bool {
	if !v.t.otherProviderReady(v.a.target) {
		return false
	}
	v.a.target.abandoned = true
	return true
}

// afterRefusal decides after the provider has rejected or throttled the key.
func (v *verdict) afterRefusal() retry.Decision {
	t, a := v.t, v.a
	r, target := t.request, a.target
	target.refusedCall = &a.call
	if a.p.keys.another(&a.call, r.scope()) && a.p.ready(r) {
		target.made-- // counts as an attempt of the key, not of the provider
		return tryNow(&v.Failure)
	}
	if len(a.p.keys.keys) > 1 {
		t.why += " on all keys"
	}
	if v.failOver() {
		return tryNow(&v.Failure)
	}
	target.refusedCall = nil
	if a.result.kind == keyThrottled {
		return v.afterThrottling()
	}
	return v.afterRejection()
}

// afterThrottling decides after all keys and providers that may be tried at once are throttled.
func (v *verdict) afterThrottling() retry.Decision {
	o := v.Outcome
	if o.Class >= retry.ClassPermanent {
		return v.Decision
	}
	if v.a.p.keys.ours && (o.After > 0 || v.a.result.wait > defaultThrottle) {
		o.After = max(v.t.soonestKey(), 1) // the earliest time may be that of another key
	}
	return v.retrySameProvider(o)
}

// afterRejection decides after the key was rejected, and nothing else may be tried at once.
func (v *verdict) afterRejection() retry.Decision {
	t, a, o := v.t, v.a, v.Outcome
	switch {
	case a.result.quotaGone && o.Class < retry.ClassPermanent:
		return v.retrySameProvider(o) // the server asks for a retry in spite of the quota
	case t.hasUsableKey(a.target, nil): // another key of the provider is only throttled
		return v.retrySameProvider(retry.Outcome{Class: retry.ClassThrottled, After: max(t.soonestKey(), 1)})
	case a.p != t.request.asked && t.hasUsableKey(&t.targets[0], nil):
		// A fallback with a rejected key must not end a call that would be retried
		// if there were no fallback.
		a.target.abandoned = true
		return v.retrySameProvider(retry.Outcome{})
	}
	return stop(retry.StopPermanent)
}

// afterFailure decides after the provider has failed.
func (v *verdict) afterFailure() retry.Decision {
	if v.Outcome.Class >= retry.ClassPermanent {
		// A request that is invalid here may be valid at another provider, but only a request
		// that was not sent may go there.
		if unreachable(v.Err) && v.failOver() {
			return tryNow(&v.Failure)
		}
		return v.Decision
	}
	if v.exhausted() && v.failOver() {
		return tryNow(&v.Failure)
	}
	return v.retrySameProvider(v.Outcome)
}

// exhausted reports whether it is time for another provider: this one has used up its
// attempts, timed out, is down, or asks for a longer wait than
// that of the policy.
func (v *verdict) exhausted() bool {
	if v.a.target.made >= attemptsPerProvider(v.t.request) || v.a.result.why == whyTimeout {
		return true
	}
	found, _ := v.a.p.upstream.gate.state()
	return found == gateClosed || v.Outcome.After > 0 && v.Outcome.After > v.PolicyWait
}

// retrySameProvider decides to retry at the same provider if its retry budget allows it.
// The wait grows with the error rate of the provider. o is the outcome of the failure.
func (v *verdict) retrySameProvider(o retry.Outcome) retry.Decision {
	t, target := v.t, v.a.target
	if t.request.retries { // the caller does the waiting
		t.lastOutcome = o
		return stop(retry.StopAttempts)
	}
	d := v.Decide(o)
	if d.Stop != 0 {
		return d
	}
	ask := target.budget.Retry
	if o.Class == retry.ClassThrottled {
		ask = target.budget.RetryThrottled
	}
	if !ask() {
		if v.failOver() {
			return tryNow(&v.Failure)
		}
		return stop(retry.StopBudget)
	}
	target.granted = true
	if longer := v.a.p.upstream.errors.Stretch(d.Wait); d.By == retry.ByPolicy && longer > d.Wait {
		longest := cmp.Or(t.request.asked.spec.Policy.Cap, math.MaxInt64)
		d.Wait, d.By = max(min(longer, longest), d.Wait), retry.BySchedule
	}
	return d
}

// hasUsableKey reports whether the provider has a key, other than but, that may
// take the request now or later: one that was not rejected. The caller holds t.mu.
func (t *targetPicker) hasUsableKey(v *requestTarget, but *key) bool {
	return v.p.override.isOpenTo(t.request.began) && slices.ContainsFunc(v.p.keys.keys, func(k *key) bool {
		return k != but && !k.isRejected() && !slices.Contains(v.rejectedKeys, k)
	})
}

// otherProviderReady reports whether another provider that has attempts left can take
// the request at once. The caller holds t.mu.
func (t *targetPicker) otherProviderReady(v *requestTarget) bool {
	for i := range t.targets {
		o := &t.targets[i]
		if o != v && t.attemptsUsed(o) == 0 && (o.p.ready(t.request) || len(o.rejectedKeys) == 0 && o.p.readyWithRejectedKey(t.request)) {
			return true
		}
	}
	return false
}

// soonestKey returns how long until a key of any provider no longer has to wait.
func (t *targetPicker) soonestKey() time.Duration {
	wait := time.Duration(math.MaxInt64)
	for i := range t.targets {
		if p := t.targets[i].p; p.override.isOpenTo(t.request.began) {
			left, _ := p.keys.waitLeft(t.request.scope())
			wait = min(wait, left)
		}
	}
	return wait
}

// nextOpening returns how long until a provider can take the request: 0 if one can
// now, and false if none ever can.
func (t *targetPicker) nextOpening() (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.targets {
		v := &t.targets[i]
		if !t.hasUsableKey(v, nil) {
			continue
		}
		w, _ := v.p.keys.waitLeft(t.request.scope())
		if found, next := v.p.upstream.gate.state(); found == gateClosed {
			w = max(w, next)
		}
		if !ok || w < wait {
			wait, ok = w, true
		}
	}
	return wait, ok
}

// hasOther reports whether there is another target for the request of the attempt: now,
// or later if the gateway does the waiting.
func (t *targetPicker) hasOther(a *attempt) bool {
	r := t.request
	if a.p.keys.another(&a.call, r.scope()) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.otherProviderReady(a.target) {
		return true
	}
	return !r.retries && (t.hasUsableKey(a.target, a.key) || a.p != r.asked && t.hasUsableKey(&t.targets[0], nil))
}

// outcome returns the outcome of the last failure, for a caller that retries.
func (t *targetPicker) outcome() retry.Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastOutcome
}
