package gateway

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// tryNow is the decision to ask another key or provider without a wait.
func tryNow(f *retryhttp.Failure) retry.Decision {
	return retry.Decision{By: retry.BySchedule, Prev: f.State.Prev}
}

// stop is the decision to make no further attempt.
func stop(why retry.Reason) retry.Decision { return retry.Decision{Stop: why} }

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

// decide decides what follows a failed round: the same provider again after the policy's
// delay, another of its keys at once, or another provider at once.
func (r *request) decide(a *attempt, f *retryhttp.Failure) retry.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &a.result
	if res.kind == neutral || f.Outcome.Final || f.Outcome.Class >= retry.ClassCanceled {
		return f.Decision
	}
	r.why = res.why
	switch res.kind {
	case keyThrottled, keyRejected:
		return r.afterRefusal(a, f)
	case failed:
		return r.afterFailure(a, f)
	default:
		return r.retrySameProvider(a, f, f.Outcome)
	}
}

// afterRefusal decides after the provider did not accept the key.
func (r *request) afterRefusal(a *attempt, f *retryhttp.Failure) retry.Decision {
	v, res, o := a.target, &a.result, f.Outcome
	v.rejectedCall = &a.call
	if a.p.keys.another(&a.call, r.scope()) && r.ready(v) {
		v.made-- // it was the key's chance, not the provider's
		return tryNow(f)
	}
	if len(a.p.keys.keys) > 1 {
		r.why += " on all keys"
	}
	if r.otherProviderReady(v) {
		v.left = true
		return tryNow(f)
	}
	v.rejectedCall = nil
	switch {
	case res.kind == keyThrottled && o.Class >= retry.ClassPermanent:
		return f.Decision
	case res.kind == keyThrottled:
		if a.p.keys.own && (o.After > 0 || res.wait > defaultThrottle) {
			o.After = max(r.soonestKey(), 1) // which may be another key's time
		}
		return r.retrySameProvider(a, f, o)
	case res.quotaGone && o.Class < retry.ClassPermanent:
		return r.retrySameProvider(a, f, o) // the server knows better
	case r.hasUsableKey(v, nil): // another key of it was told to wait
		return r.retrySameProvider(a, f, retry.Outcome{Class: retry.ClassThrottled, After: max(r.soonestKey(), 1)})
	case a.p != r.asked && r.hasUsableKey(&r.targets[0], nil):
		// A fallback with a bad key must not make a failure final that would be tried
		// again without the fallback.
		v.left = true
		return r.retrySameProvider(a, f, retry.Outcome{})
	}
	return stop(retry.StopPermanent)
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

// afterFailure decides after the provider did not do its job.
func (r *request) afterFailure(a *attempt, f *retryhttp.Failure) retry.Decision {
	v := a.target
	if f.Outcome.Class >= retry.ClassPermanent {
		// What will not pass here may be no trouble elsewhere; but only what was not
		// sent may be sent elsewhere without asking.
		if unreachable(f.Err) && r.otherProviderReady(v) {
			v.left = true
			return tryNow(f)
		}
		return f.Decision
	}
	if r.exhausted(a, f) && r.otherProviderReady(v) {
		v.left = true
		return tryNow(f)
	}
	return r.retrySameProvider(a, f, f.Outcome)
}

// exhausted reports whether it is time for another provider: this one has had its
// attempts, or took too long for another one, or is down, or asks for a longer wait than
// the policy would make.
func (r *request) exhausted(a *attempt, f *retryhttp.Failure) bool {
	if a.target.made >= r.attemptsPerProvider() || a.result.why == whyTimeout {
		return true
	}
	found, _ := a.p.gate.state()
	return found == gateClosed || f.Outcome.After > 0 && f.Outcome.After > f.PolicyWait
}

// retrySameProvider stays with the provider if its retry budget allows it, and waits
// longer the more of its requests fail.
func (r *request) retrySameProvider(a *attempt, f *retryhttp.Failure, o retry.Outcome) retry.Decision {
	v := a.target
	if r.callerRetries { // the caller retries, and waits
		r.lastOutcome = o
		return stop(retry.StopAttempts)
	}
	d := f.Decide(o)
	if d.Stop != 0 {
		return d
	}
	ask := v.account.Retry
	if o.Class == retry.ClassThrottled {
		ask = v.account.RetryThrottled
	}
	if !ask() {
		if r.otherProviderReady(v) {
			v.left = true
			return tryNow(f)
		}
		return stop(retry.StopBudget)
	}
	v.granted = true
	if d.By == retry.ByPolicy && d.Wait > 0 && a.p.errors.Pressure() > 0 {
		longest := cmp.Or(r.asked.spec.Policy.Cap, math.MaxInt64)
		d.Wait, d.By = max(min(a.p.errors.Stretch(d.Wait), longest), d.Wait), retry.BySchedule
	}
	return d
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
