package gateway

import (
	"cmp"
	"math"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// verdict decides what follows a failed round of a request. Its methods need the
// request's lock.
type verdict struct {
	retryhttp.Failure // a copy: a pointer would move it to the heap
	r                 *request
	a                 *attempt
}

// decide decides what follows a failed round: the same provider again after the policy's
// delay, another of its keys at once, or another provider at once.
func (r *request) decide(a *attempt, f *retryhttp.Failure) retry.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.result.kind == neutral || f.Outcome.Final || f.Outcome.Class >= retry.ClassCanceled {
		return f.Decision
	}
	r.why = a.result.why
	v := verdict{*f, r, a}
	switch a.result.kind {
	case keyThrottled, keyRejected:
		return v.afterRejection()
	case failed:
		return v.afterFailure()
	default:
		return v.retrySameProvider(f.Outcome)
	}
}

// tryNow is the decision to ask another key or provider without a wait.
func tryNow(f *retryhttp.Failure) retry.Decision {
	return retry.Decision{By: retry.BySchedule, Prev: f.State.Prev}
}

// stop is the decision to make no further attempt.
func stop(why retry.Reason) retry.Decision { return retry.Decision{Stop: why} }

// failOver leaves the provider for another one, and reports whether that would take the
// request at once.
func (v *verdict) failOver() bool {
	if !v.r.otherProviderReady(v.a.target) {
		return false
	}
	v.a.target.left = true
	return true
}

// afterRejection decides after the provider rejected the key or throttled it.
func (v *verdict) afterRejection() retry.Decision {
	r, a, res, o := v.r, v.a, &v.a.result, v.Outcome
	target := a.target
	target.rejectedCall = &a.call
	if a.p.keys.another(&a.call, r.scope()) && r.ready(target) {
		target.made-- // an attempt of the key, not of the provider
		return tryNow(&v.Failure)
	}
	if len(a.p.keys.keys) > 1 {
		r.why += " on all keys"
	}
	if v.failOver() {
		return tryNow(&v.Failure)
	}
	target.rejectedCall = nil
	switch {
	case res.kind == keyThrottled && o.Class >= retry.ClassPermanent:
		return v.Decision
	case res.kind == keyThrottled:
		if a.p.keys.own && (o.After > 0 || res.wait > defaultThrottle) {
			o.After = max(r.soonestKey(), 1) // which may be another key's time
		}
		return v.retrySameProvider(o)
	case res.quotaGone && o.Class < retry.ClassPermanent:
		return v.retrySameProvider(o) // the server knows better
	case r.hasUsableKey(target, nil): // another key of the provider is throttled
		return v.retrySameProvider(retry.Outcome{Class: retry.ClassThrottled, After: max(r.soonestKey(), 1)})
	case a.p != r.asked && r.hasUsableKey(&r.targets[0], nil):
		// A fallback with a bad key must not make a failure final that would be tried
		// again without the fallback.
		target.left = true
		return v.retrySameProvider(retry.Outcome{})
	}
	return stop(retry.StopPermanent)
}

// afterFailure decides after the provider did not do its job.
func (v *verdict) afterFailure() retry.Decision {
	if v.Outcome.Class >= retry.ClassPermanent {
		// A permanent failure here may be none at another provider; but only a request
		// that was not sent may go there without more ado.
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

// exhausted reports whether it is time for another provider: this one has had its
// attempts, or took too long for another one, or is down, or asks for a longer wait than
// the policy would make.
func (v *verdict) exhausted() bool {
	if v.a.target.made >= v.r.attemptsPerProvider() || v.a.result.why == whyTimeout {
		return true
	}
	found, _ := v.a.p.gate.state()
	return found == gateClosed || v.Outcome.After > 0 && v.Outcome.After > v.PolicyWait
}

// retrySameProvider stays with the provider if its retry budget allows it, and waits
// longer the more of its requests fail. The outcome is what the failure means for it.
func (v *verdict) retrySameProvider(o retry.Outcome) retry.Decision {
	r, target := v.r, v.a.target
	if r.callerRetries { // the caller waits, too
		r.lastOutcome = o
		return stop(retry.StopAttempts)
	}
	d := v.Decide(o)
	if d.Stop != 0 {
		return d
	}
	ask := target.account.Retry
	if o.Class == retry.ClassThrottled {
		ask = target.account.RetryThrottled
	}
	if !ask() {
		if v.failOver() {
			return tryNow(&v.Failure)
		}
		return stop(retry.StopBudget)
	}
	target.granted = true
	if d.By == retry.ByPolicy && d.Wait > 0 && v.a.p.errors.Pressure() > 0 {
		longest := cmp.Or(r.asked.spec.Policy.Cap, math.MaxInt64)
		d.Wait, d.By = max(min(v.a.p.errors.Stretch(d.Wait), longest), d.Wait), retry.BySchedule
	}
	return d
}
