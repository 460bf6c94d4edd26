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
func (t *request) recordFailure(l *attempt, failure error, o retry.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := l.target
	if errors.Is(failure, retryhttp.ErrBody) && t.notKept.CompareAndSwap(false, true) {
		t.asked.stats.notKept.Add(1)
	}
	if v.began && !(l.result.kind == neutral && shortage.Is(failure)) {
		v.account.Fail()
	}
	v.failure, t.lastOutcome = failure, o
	if !t.hasResponse {
		t.last = l
	}
	if !o.Final {
		t.recordRejection(l)
	}
}

// hasOtherTarget reports whether there is another target for the request of the attempt:
// now or, if the gateway waits for the caller, later.
func (t *request) hasOtherTarget(l *attempt) bool {
	if l.p.keys.another(&l.call, t.scope()) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.otherProviderReady(l.target) {
		return true
	}
	return !t.callerRetries && (t.hasUsableKey(l.target, l.key) || l.p != t.asked && t.hasUsableKey(&t.targets[0], nil))
}

// decide decides what follows a failed round: the same provider again after the policy's
// delay, another of its keys at once, or another provider at once.
func (t *request) decide(l *attempt, f *retryhttp.Failure) retry.Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &l.result
	if r.kind == neutral || f.Outcome.Final || f.Outcome.Class >= retry.ClassCanceled {
		return f.Decision
	}
	t.why = r.why
	switch r.kind {
	case keyThrottled, keyRejected:
		return t.afterRefusal(l, f)
	case failed:
		return t.afterFailure(l, f)
	default:
		return t.retrySameProvider(l, f, f.Outcome)
	}
}

// afterRefusal decides after the provider did not accept the key.
func (t *request) afterRefusal(l *attempt, f *retryhttp.Failure) retry.Decision {
	v, r, o := l.target, &l.result, f.Outcome
	v.rejectedCall = &l.call
	if l.p.keys.another(&l.call, t.scope()) && t.ready(v) {
		v.made-- // it was the key's chance, not the provider's
		return tryNow(f)
	}
	if len(l.p.keys.keys) > 1 {
		t.why += " on all keys"
	}
	if t.otherProviderReady(v) {
		v.left = true
		return tryNow(f)
	}
	v.rejectedCall = nil
	switch {
	case r.kind == keyThrottled && o.Class >= retry.ClassPermanent:
		return f.Decision
	case r.kind == keyThrottled:
		if l.p.keys.own && (o.After > 0 || r.wait > defaultThrottle) {
			o.After = max(t.soonestKey(), 1) // which may be another key's time
		}
		return t.retrySameProvider(l, f, o)
	case r.quotaGone && o.Class < retry.ClassPermanent:
		return t.retrySameProvider(l, f, o) // the server knows better
	case t.hasUsableKey(v, nil): // another key of it was told to wait
		return t.retrySameProvider(l, f, retry.Outcome{Class: retry.ClassThrottled, After: max(t.soonestKey(), 1)})
	case l.p != t.asked && t.hasUsableKey(&t.targets[0], nil):
		// A fallback with a bad key must not make a failure final that would be tried
		// again without the fallback.
		v.left = true
		return t.retrySameProvider(l, f, retry.Outcome{})
	}
	return stop(retry.StopPermanent)
}

// recordRejection records that the attempt's key was rejected. It needs the lock.
func (t *request) recordRejection(l *attempt) {
	v := l.target
	if l.result.kind != keyRejected || slices.Contains(v.rejectedKeys, l.key) {
		return
	}
	v.rejectedKeys = append(v.rejectedKeys, l.key)
	if l.result.code == http.StatusForbidden {
		v.forbiddenKeys = append(v.forbiddenKeys, l.key)
	}
}

// afterFailure decides after the provider did not do its job.
func (t *request) afterFailure(l *attempt, f *retryhttp.Failure) retry.Decision {
	v := l.target
	if f.Outcome.Class >= retry.ClassPermanent {
		// What will not pass here may be no trouble elsewhere; but only what was not
		// sent may be sent elsewhere without asking.
		if unreachable(f.Err) && t.otherProviderReady(v) {
			v.left = true
			return tryNow(f)
		}
		return f.Decision
	}
	if t.exhausted(l, f) && t.otherProviderReady(v) {
		v.left = true
		return tryNow(f)
	}
	return t.retrySameProvider(l, f, f.Outcome)
}

// exhausted reports whether it is time for another provider: this one has had its
// attempts, or took too long for another one, or is down, or asks for a longer wait than
// the policy would make.
func (t *request) exhausted(l *attempt, f *retryhttp.Failure) bool {
	if l.target.made >= t.attemptsPerProvider() || l.result.why == whyTimeout {
		return true
	}
	found, _ := l.p.gate.state()
	return found == gateClosed || f.Outcome.After > 0 && f.Outcome.After > f.PolicyWait
}

// retrySameProvider stays with the provider if its retry budget allows it, and waits
// longer the more of its requests fail.
func (t *request) retrySameProvider(l *attempt, f *retryhttp.Failure, o retry.Outcome) retry.Decision {
	v := l.target
	if t.callerRetries { // the caller retries, and waits
		t.lastOutcome = o
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
		if t.otherProviderReady(v) {
			v.left = true
			return tryNow(f)
		}
		return stop(retry.StopBudget)
	}
	v.granted = true
	if d.By == retry.ByPolicy && d.Wait > 0 && l.p.errors.Pressure() > 0 {
		longest := cmp.Or(t.asked.spec.Policy.Cap, math.MaxInt64)
		d.Wait, d.By = max(min(l.p.errors.Stretch(d.Wait), longest), d.Wait), retry.BySchedule
	}
	return d
}

// recordSuccess records that the attempt brought a response that no retry would change.
func (t *request) recordSuccess(l *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasResponse {
		t.last = l
	}
	l.target.success, t.hasResponse = l.result.kind == succeeded, true
	if l.result.kind != succeeded {
		t.recordRejection(l)
		return
	}
	// Another key was let in, so it was the keys that were at fault before.
	for _, k := range l.target.forbiddenKeys {
		if k != l.key {
			l.p.keys.avoid(k, avoidRejected, "403")
		}
	}
	l.target.forbiddenKeys = nil
}
