package gateway

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/retry"
)

// leg is one attempt of a trip. It holds what the attempt has got on its way in,
// and reports what became of it.
type leg struct {
	trip  *trip
	visit *visit
	p     *provider
	n     int           // number of the attempt
	req   *http.Request // the attempt's own

	key    *key
	call   health.Call
	pass   health.Pass
	permit breaker.Permit // none of a probe
	slot   bool           // has one of p.slots
	probe  bool           // finds out whether its key still has to wait; see throttles
	flying atomic.Bool    // is counted as under way
	sent   time.Duration
	upload time.Duration // how long the caller was waited for before
	result result
	final  bool // the caller gets its answer
}

// uploadTime returns how long the leg has waited for the caller.
func (l *leg) uploadTime() time.Duration { return l.trip.upload.waited() - l.upload }

// slowUpload reports whether the leg has waited for the caller for most of its time, and
// the body is still not there.
func (l *leg) slowUpload() bool {
	t := l.trip
	return t.upload.writer != nil && !t.upload.ended.Load() && 2*l.uploadTime() > clock.Now()-l.sent
}

// release gives back the leg's place among those that are under way.
func (l *leg) release() {
	if l.slot {
		l.slot = false
		l.p.slots.Release()
	}
	if l.flying.CompareAndSwap(true, false) {
		l.p.inFlight.Add(-1)
	}
}

// Rejected implements [retryhttp.Attempt]. A response that rejects one of our keys is none
// for the caller while there is another key, or another provider.
func (l *leg) Rejected(resp *http.Response) bool {
	return l.key.refusable(resp.StatusCode) && l.trip.other(l)
}

// Done implements [retryhttp.Attempt].
func (l *leg) Done(resp *http.Response, failure error, o retry.Outcome) {
	l.result = l.judge(resp, failure, o)
	l.report(resp)
	if failure == nil {
		l.final = true
		l.trip.arrived(l)
		return
	}
	l.release() // during the wait, others may use its place
	l.trip.recordFailure(l, failure, o)
}

// Interrupt implements [retryhttp.Interruptible].
func (l *leg) Interrupt() { l.trip.upload.stop() }

// Closed implements [retryhttp.Attempt].
func (l *leg) Closed(err error) {
	l.release()
	if l.result.kind != fine {
		return
	}
	if err == nil || !l.final || l.trip.gone() {
		l.call.Done(health.Succeeded)
		return
	}
	l.trip.cut.Store(true)
	l.call.Done(health.Failed)
	l.p.errors.Add(false)
	l.permit.Done(breaker.Failure) // beside the success that its beginning was
}

// report tells everybody what became of the attempt.
func (l *leg) report(resp *http.Response) {
	p, r := l.p, &l.result
	now := clock.Now() - l.uploadTime()
	if resp != nil {
		p.quotas.read(l.key.name, resp.Header, time.Now())
		p.tally.ttfb.observe(now - l.sent)
		l.key.tally.by[classOf(r.code)].Add(1)
		if a := l.key.account; a != nil {
			l.reportAccount(a, resp)
		}
	}
	if p.send != nil && r.kind != neutral {
		p.send.Report(r.kind == throttled)
	}
	if (r.kind == fine || r.kind == throttled) && p.ring.welcome(l.key) {
		p.watchers.wake(reopened)
	}
	if l.probe {
		l.probed()
	}
	switch r.kind {
	case neutral:
		l.key.tally.by[classCanceled].Add(1)
		l.settle(breaker.Canceled, health.Canceled)
		l.call.Done(health.Canceled)
	case fine:
		p.errors.Add(true)
		p.pace.observe(now - l.sent)
		l.call.FirstByteAt(now)
		l.settle(breaker.Success, health.Succeeded)
	case failed:
		if resp == nil {
			l.key.tally.by[classError].Add(1)
		}
		p.errors.Add(false)
		// A provider that is down is looked at once a minute at least, whatever one of its
		// paths asks for.
		wait := min(r.wait, probeEvery)
		p.door.askedFor(wait)
		l.call.Done(health.Failed)
		l.settle(breaker.Failure, health.FailedFor(wait))
	case throttled:
		p.tally.throttled.Add(1)
		l.call.Done(health.RefusedFor(0))
		l.throttled(resp)
	case refused:
		if r.code == http.StatusTooManyRequests {
			p.tally.throttled.Add(1)
		}
		l.call.Done(health.RefusedFor(0))
		switch {
		case r.code == http.StatusForbidden: // perhaps it is about what was asked for
		case r.told:
			l.throttleScope(resp)
		default:
			l.p.ring.cool(l.key, r.wait, r.why)
		}
		l.settle(breaker.Canceled, health.Succeeded) // the server is there
	}
}

// throttled reports that the key was one too many. What is told to callers about
// their own keys concerns only them. A server that says so is up: neither the breaker
// nor the gate takes it for a failure.
func (l *leg) throttled(resp *http.Response) {
	switch {
	case l.p.ring.own:
		l.p.errors.Add(false)
		l.throttleScope(resp)
		l.settle(breaker.Canceled, health.Succeeded)
	case l.pass.Probe(): // whoever is told to wait has not been let in
		l.settle(breaker.Canceled, health.FailedFor(min(l.result.wait, probeEvery)))
	default:
		l.settle(breaker.Canceled, health.Canceled)
	}
}

// probed reports what became of an attempt that was let through before its key's wait
// was over. Another 429 is reported like the first.
func (l *leg) probed() {
	t, s := &l.p.ring.throttles, l.trip.scope()
	switch {
	case l.result.kind == neutral:
		t.giveBack(l.key, s)
	case l.result.kind == fine && l.result.code < http.StatusBadRequest: // a bad request may be answered before limits are looked at
		if t.open(l.key, s) {
			l.p.watchers.wake(reopened)
		}
	}
}

// settle tells breaker and gate.
func (l *leg) settle(b breaker.Result, o health.Outcome) {
	back := l.pass.Probe() && o == health.Succeeded
	if back {
		l.p.forgive() // before the gate opens, or those who waited would find it open
	}
	l.p.door.done(l.pass, o)
	if d := l.uploadTime(); d > 0 && l.p.spec.Breaker.SlowCall > 0 {
		l.permit.DoneAt(clock.Now()-d, b)
	} else {
		l.permit.Done(b)
	}
	if back {
		l.p.recovered()
	}
}
