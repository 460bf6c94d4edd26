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

// recordFailure notes how the attempt failed.
func (t *trip) recordFailure(l *leg, failure error, o retry.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := l.visit
	if errors.Is(failure, retryhttp.ErrBody) && t.notKept.CompareAndSwap(false, true) {
		t.asked.tally.notKept.Add(1)
	}
	if v.began && !(l.result.kind == neutral && shortage.Is(failure)) {
		v.account.Fail()
	}
	v.failure, t.means = failure, o
	if !t.won {
		t.last = l
	}
	if !o.Final {
		t.deny(l)
	}
}

// other reports whether there is another target for the leg's request: now or, for a
// caller that waits here, later.
func (t *trip) other(l *leg) bool {
	if l.p.ring.another(&l.call, t.scope()) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.elsewhere(l.visit) {
		return true
	}
	return !t.once && (t.hope(l.visit, l.key) || l.p != t.asked && t.hope(&t.visits[0], nil))
}

// next decides what follows a failed round: the same provider again by the policy's
// delay, another of its keys at once, or another provider at once.
func (t *trip) next(l *leg, f *retryhttp.Failure) retry.Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &l.result
	if r.kind == neutral || f.Outcome.Final || f.Outcome.Class >= retry.ClassCanceled {
		return f.Decision
	}
	t.why = r.why
	switch r.kind {
	case throttled, refused:
		return t.afterRefusal(l, f)
	case failed:
		return t.afterFailure(l, f)
	default:
		return t.again(l, f, f.Outcome)
	}
}

// afterRefusal decides after the provider did not accept the key.
func (t *trip) afterRefusal(l *leg, f *retryhttp.Failure) retry.Decision {
	v, r, o := l.visit, &l.result, f.Outcome
	v.refused = &l.call
	if l.p.ring.another(&l.call, t.scope()) && t.ready(v) {
		v.made-- // it was the key's chance, not the provider's
		return tryNow(f)
	}
	if len(l.p.ring.keys) > 1 {
		t.why += " on all keys"
	}
	if t.elsewhere(v) {
		v.left = true
		return tryNow(f)
	}
	v.refused = nil
	switch {
	case r.kind == throttled && o.Class >= retry.ClassPermanent:
		return f.Decision
	case r.kind == throttled:
		if l.p.ring.own && (o.After > 0 || r.wait > coolThrottled) {
			o.After = max(t.soonest(), 1) // which may be another key's time
		}
		return t.again(l, f, o)
	case r.gone && o.Class < retry.ClassPermanent:
		return t.again(l, f, o) // the server knows better
	case t.hope(v, nil): // another key of it was told to wait
		return t.again(l, f, retry.Outcome{Class: retry.ClassThrottled, After: max(t.soonest(), 1)})
	case l.p != t.asked && t.hope(&t.visits[0], nil):
		// A fallback with a bad key must not make a failure final that would be tried
		// again without the fallback.
		v.left = true
		return t.again(l, f, retry.Outcome{})
	}
	return stop(retry.StopPermanent)
}

// deny notes that the leg's key was refused. It needs the lock.
func (t *trip) deny(l *leg) {
	v := l.visit
	if l.result.kind != refused || slices.Contains(v.denied, l.key) {
		return
	}
	v.denied = append(v.denied, l.key)
	if l.result.code == http.StatusForbidden {
		v.doubted = append(v.doubted, l.key)
	}
}

// afterFailure decides after the provider did not do its job.
func (t *trip) afterFailure(l *leg, f *retryhttp.Failure) retry.Decision {
	v := l.visit
	if f.Outcome.Class >= retry.ClassPermanent {
		// What will not pass here may be no trouble elsewhere; but only what was not
		// sent may be sent elsewhere without asking.
		if unreachable(f.Err) && t.elsewhere(v) {
			v.left = true
			return tryNow(f)
		}
		return f.Decision
	}
	if t.exhausted(l, f) && t.elsewhere(v) {
		v.left = true
		return tryNow(f)
	}
	return t.again(l, f, f.Outcome)
}

// exhausted reports whether it is time for another provider: this one has had its
// attempts, or took too long for another one, or is down, or asks for a longer wait than
// the policy would make.
func (t *trip) exhausted(l *leg, f *retryhttp.Failure) bool {
	if l.visit.made >= t.allowed() || l.result.why == whyTimeout {
		return true
	}
	found, _ := l.p.door.look()
	return found == closed || f.Outcome.After > 0 && f.Outcome.After > f.PolicyWait
}

// again stays with the provider, if there is something left in its budget, and waits
// longer the more of its requests fail.
func (t *trip) again(l *leg, f *retryhttp.Failure, o retry.Outcome) retry.Decision {
	v := l.visit
	if t.once { // the caller retries, and waits
		t.means = o
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
		if t.elsewhere(v) {
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

// arrived notes that the attempt brought an answer that no retry would change.
func (t *trip) arrived(l *leg) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.won {
		t.last = l
	}
	l.visit.success, t.won = l.result.kind == fine, true
	if l.result.kind != fine {
		t.deny(l)
		return
	}
	// Another key was let in, so it was the keys that were at fault before.
	for _, k := range l.visit.doubted {
		if k != l.key {
			l.p.ring.cool(k, coolRefused, "403")
		}
	}
	l.visit.doubted = nil
}
