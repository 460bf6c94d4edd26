package gateway

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// atOnce is a failure after which somebody else can be asked without delay.
var atOnce = retry.Outcome{Class: retry.ClassTransient, Delay: 1}

// The delays of outcomes that are final for a reason of ours. The policy does not
// look at the delay of what is final.
const (
	overBudget   time.Duration = -1 // there is nothing left for retries
	leftToCaller time.Duration = -2 // who retries by himself waits by himself
)

// next says what follows a failed attempt: the same provider again by the policy's
// delay, another of its keys at once, or another provider at once.
func (t *trip) next(l *leg, failure error, o retry.Outcome) retry.Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, r := l.visit, &l.result
	if errors.Is(failure, retryhttp.ErrBody) && t.notKept.CompareAndSwap(false, true) {
		t.asked.tally.notKept.Add(1)
	}
	if l.result.kind == neutral && shortage.Is(failure) {
		o.Final = true // the caller is told to try again later, when this machine has room
	} else if v.began {
		v.account.Fail()
	}
	v.failure, t.means = failure, o
	if !t.won {
		t.last = l
	}
	if r.kind == neutral || o.Final {
		return o
	}
	t.why = r.why
	switch r.kind {
	case throttled, refused:
		return t.afterRefusal(l, o)
	case failed:
		return t.afterFailure(l, failure, o)
	default:
		return t.again(l, o)
	}
}

// afterRefusal goes on after a key was not let in.
func (t *trip) afterRefusal(l *leg, o retry.Outcome) retry.Outcome {
	v, r := l.visit, &l.result
	t.deny(l)
	v.refused = &l.call
	if l.p.ring.another(&l.call, t.scope()) && t.ready(v) {
		v.made-- // it was the key's chance, not the provider's
		return atOnce
	}
	if len(l.p.ring.keys) > 1 {
		t.why += " on all keys"
	}
	if t.elsewhere(v) {
		v.left = true
		return atOnce
	}
	v.refused = nil
	switch {
	case r.kind == throttled && o.Class >= retry.ClassPermanent:
		return o
	case r.kind == throttled:
		if l.p.ring.own && (o.After > 0 || r.wait > coolThrottled) {
			o.After = max(t.soonest(), 1) // which may be another key's time
		}
		return t.again(l, o)
	case r.gone && o.Class < retry.ClassPermanent:
		return t.again(l, o) // the server knows better
	case t.hope(v, nil): // another key of it was told to wait
		return t.again(l, retry.Outcome{Class: retry.ClassThrottled, After: max(t.soonest(), 1)})
	case l.p != t.asked && t.hope(&t.visits[0], nil):
		// A fallback with a bad key must not make a failure final that would be tried
		// again without the fallback.
		v.left = true
		return t.again(l, retry.Outcome{})
	}
	return retry.Outcome{Class: retry.ClassPermanent}
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

// afterFailure goes on after the provider did not do its job.
func (t *trip) afterFailure(l *leg, failure error, o retry.Outcome) retry.Outcome {
	v := l.visit
	if o.Class >= retry.ClassPermanent {
		// What will not pass here may be no trouble elsewhere; but only what was not
		// sent may be sent elsewhere without asking.
		if unreachable(failure) && t.elsewhere(v) {
			v.left = true
			return atOnce
		}
		return o
	}
	if t.hadEnough(l, o) && t.elsewhere(v) {
		v.left = true
		return atOnce
	}
	return t.again(l, o)
}

// hadEnough reports whether it is time for another provider: this one has had its
// chances, or took too long for another one, or is not to be asked now.
func (t *trip) hadEnough(l *leg, o retry.Outcome) bool {
	if l.visit.made >= t.allowed() || l.result.why == whyTimeout {
		return true
	}
	found, _ := l.p.door.look()
	return found == closed || t.toldToWait(l, o)
}

// toldToWait reports whether the server asks for a longer wait than the policy
// would make.
func (t *trip) toldToWait(l *leg, o retry.Outcome) bool {
	if o.After == 0 {
		return false
	}
	after := o.After
	o.After = 0
	return after > retry.Decide(t.asked.spec.Policy, retry.State{Attempt: l.n, Prev: t.prev}, o, retry.Gates{}, rand.Uint64()).Wait
}

// again stays with the provider, if there is something left in its budget, and
// waits longer the more of what it is sent is in vain.
func (t *trip) again(l *leg, o retry.Outcome) retry.Outcome {
	v, policy := l.visit, &t.asked.spec.Policy
	if t.once {
		t.means = o
		return retry.Outcome{Class: o.Class, Final: true, After: o.After, Delay: leftToCaller}
	}
	d := retry.Decide(*policy, retry.State{Attempt: l.n, Prev: t.prev}, o, retry.Gates{}, rand.Uint64())
	if d.Stop != 0 {
		return o
	}
	ask := v.account.Retry
	if o.Class == retry.ClassThrottled {
		ask = v.account.RetryThrottled
	}
	if !ask() {
		if t.elsewhere(v) {
			v.left = true
			return atOnce
		}
		return retry.Outcome{Class: retry.ClassPermanent, Delay: overBudget}
	}
	v.granted = true
	if d.By == retry.ByPolicy && l.p.errors.Pressure() > 0 {
		o.Delay, t.prev = l.p.errors.Stretch(d.Wait), d.Prev
	}
	return o
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
