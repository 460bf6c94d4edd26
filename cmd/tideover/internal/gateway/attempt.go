package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/cmd/tideover/internal/shortage"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// attempt is one attempt of a request. It holds what the attempt has acquired, and
// reports how it went.
type attempt struct {
	request *request
	target  *requestTarget
	p       *provider
	n       int           // number of the attempt
	req     *http.Request // the attempt's own

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

// uploadTime returns how long the attempt has waited for the caller's body.
func (l *attempt) uploadTime() time.Duration { return l.request.upload.waited() - l.upload }

// slowUpload reports whether the attempt has waited for the caller's body for most of
// its time, and the body is still incomplete.
func (l *attempt) slowUpload() bool {
	t := l.request
	return t.upload.writer != nil && !t.upload.ended.Load() && 2*l.uploadTime() > clock.Now()-l.sent
}

// release gives back the attempt's slot, and counts it as in flight no longer.
func (l *attempt) release() {
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
func (l *attempt) Rejected(resp *http.Response) bool {
	return l.key.rejectedBy(resp.StatusCode) && l.request.hasOtherTarget(l)
}

// Done implements [retryhttp.Attempt].
func (l *attempt) Done(resp *http.Response, failure error, o retry.Outcome) {
	l.result = l.classify(resp, failure, o)
	l.report(resp)
	if failure == nil {
		l.final = true
		l.request.recordSuccess(l)
		return
	}
	l.release() // during the wait, others may use its place
	l.request.recordFailure(l, failure, o)
}

// Interrupt implements [retryhttp.Interruptible].
func (l *attempt) Interrupt() { l.request.upload.stop() }

// Closed implements [retryhttp.Attempt].
func (l *attempt) Closed(err error) {
	l.release()
	if l.result.kind != succeeded {
		return
	}
	if err == nil || !l.final || l.request.callerGone() {
		l.call.Done(health.Succeeded)
		return
	}
	l.request.cut.Store(true)
	l.call.Done(health.Failed)
	l.p.errors.Add(false)
	l.permit.Done(breaker.Failure) // beside the success that its beginning was
}

// report reports the result to the key, the limits, the breaker and the gate of the
// provider.
func (l *attempt) report(resp *http.Response) {
	p, r := l.p, &l.result
	now := clock.Now() - l.uploadTime()
	if resp != nil {
		p.quotas.read(l.key.name, resp.Header, time.Now())
		p.stats.ttfb.observe(now - l.sent)
		l.key.stats.by[classOf(r.code)].Add(1)
		if a := l.key.account; a != nil {
			l.reportAccount(a, resp)
		}
	}
	if p.send != nil && r.kind != neutral {
		p.send.Report(r.kind == keyThrottled)
	}
	if (r.kind == succeeded || r.kind == keyThrottled) && p.keys.readmit(l.key) {
		p.subscribers.wake(reopened)
	}
	if l.probe {
		l.reportProbe()
	}
	switch r.kind {
	case neutral:
		l.key.stats.by[classCanceled].Add(1)
		l.reportHealth(breaker.Canceled, health.Canceled)
		l.call.Done(health.Canceled)
	case succeeded:
		p.errors.Add(true)
		p.pace.observe(now - l.sent)
		l.call.FirstByteAt(now)
		l.reportHealth(breaker.Success, health.Succeeded)
	case failed:
		if resp == nil {
			l.key.stats.by[classError].Add(1)
		}
		p.errors.Add(false)
		// A provider that is down is looked at once a minute at least, whatever one of its
		// paths asks for.
		wait := min(r.wait, probeEvery)
		p.gate.askedFor(wait)
		l.call.Done(health.Failed)
		l.reportHealth(breaker.Failure, health.FailedFor(wait))
	case keyThrottled:
		p.stats.throttled.Add(1)
		l.call.Done(health.RefusedFor(0))
		l.reportThrottled(resp)
	case keyRejected:
		if r.code == http.StatusTooManyRequests {
			p.stats.throttled.Add(1)
		}
		l.call.Done(health.RefusedFor(0))
		switch {
		case r.code == http.StatusForbidden: // perhaps it is about what was asked for
		case r.serverSaid:
			l.throttleScope(resp)
		default:
			l.p.keys.avoid(l.key, r.wait, r.why)
		}
		l.reportHealth(breaker.Canceled, health.Succeeded) // the server is there
	}
}

// reportThrottled reports that the key has sent too many requests. What a provider says
// about a caller's own key concerns that caller only. A provider that throttles is up:
// neither the breaker nor the gate counts it as a failure.
func (l *attempt) reportThrottled(resp *http.Response) {
	switch {
	case l.p.keys.own:
		l.p.errors.Add(false)
		l.throttleScope(resp)
		l.reportHealth(breaker.Canceled, health.Succeeded)
	case l.pass.Probe(): // a probe that is throttled was not accepted
		l.reportHealth(breaker.Canceled, health.FailedFor(min(l.result.wait, probeEvery)))
	default:
		l.reportHealth(breaker.Canceled, health.Canceled)
	}
}

// reportProbe reports the result of an attempt that was sent before its key's wait was
// over. Another 429 is reported like the first.
func (l *attempt) reportProbe() {
	t, s := &l.p.keys.throttles, l.request.scope()
	switch {
	case l.result.kind == neutral:
		t.giveBack(l.key, s)
	case l.result.kind == succeeded && l.result.code < http.StatusBadRequest: // a bad request may be answered before limits are looked at
		if t.open(l.key, s) {
			l.p.subscribers.wake(reopened)
		}
	}
}

// reportHealth reports the result to the breaker and the gate.
func (l *attempt) reportHealth(b breaker.Result, o health.Outcome) {
	back := l.pass.Probe() && o == health.Succeeded
	if back {
		l.p.forgive() // before the gate opens, or those who waited would find it open
	}
	l.p.gate.done(l.pass, o)
	if d := l.uploadTime(); d > 0 && l.p.spec.Breaker.SlowCall > 0 {
		l.permit.DoneAt(clock.Now()-d, b)
	} else {
		l.permit.Done(b)
	}
	if back {
		l.p.recovered()
	}
}

// result is what an attempt says about the provider and the key.
type result struct {
	kind       resultKind
	code       int           // the status, or the one that an error event stands for; 0 without an answer
	wait       time.Duration // until the key or the provider may be asked again
	serverSaid bool          // the server stated wait
	quotaGone  bool          // quota or credit is gone, and no wait of ours helps
	why        string        // in a few words
}

type resultKind uint8

const (
	succeeded    resultKind = iota // the provider answered, even if the answer was "no"
	neutral                        // nothing is known: the caller disconnected, or its body could not be read
	failed                         // the provider did not do its job
	keyThrottled                   // too many requests with the key
	keyRejected                    // the key is not accepted, or has no credit
)

// classify returns the result of the attempt.
func (l *attempt) classify(resp *http.Response, failure error, o retry.Outcome) (r result) {
	status, _ := errors.AsType[*retryhttp.StatusError](failure)
	switch {
	case status != nil:
		r.code = status.Code
	case resp != nil:
		r.code = resp.StatusCode
	}
	r.why = l.reason(failure, r.code)
	switch {
	case resp == nil && (l.request.callerGone() || l.request.bodyError() != nil || o.Class == retry.ClassCanceled || errors.Is(failure, context.Canceled)):
		r.kind = neutral
	case resp == nil && shortage.Is(failure): // of this machine, of which the provider knows nothing
		r.kind = neutral
	case resp == nil && r.why == whyTimeout && l.slowUpload():
		r.kind = neutral
	case resp == nil:
		r.kind = failed
	case r.code == http.StatusTooManyRequests && failure != nil:
		r.kind, r.wait, r.serverSaid = keyThrottled, cmp.Or(o.After, defaultThrottle), true
		if reset, _ := subscriptionReset(resp.Header, time.Now()); reset > r.wait {
			r.wait = reset
		}
		if status != nil && status.Quota != "" {
			r.quotaGone, r.wait, r.serverSaid = true, cmp.Or(o.After, avoidUnpaid), o.After > 0
			r.why += " " + status.Quota
			if l.p.keys.own {
				r.kind = keyRejected // to come more slowly is no help
			}
		}
	case l.key.rejectedBy(r.code):
		r.kind, r.wait = keyRejected, avoidRejected
		if r.code == http.StatusPaymentRequired {
			r.wait = avoidUnpaid
		}
		if told, ok := retryhttp.ServerDelay(resp.Header, time.Now()); ok && told > 0 {
			r.wait, r.serverSaid = told, true
		}
	case failure != nil && r.code != http.StatusNotImplemented && r.code != http.StatusHTTPVersionNotSupported &&
		r.code != http.StatusTooEarly && r.code != http.StatusMisdirectedRequest && r.code != http.StatusConflict:
		r.kind, r.wait = failed, o.After
	}
	return r
}

// refusable reports whether the status says that the key is not wanted, and the
// key is ours.
func (k *key) rejectedBy(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return !k.value.IsZero()
	}
	return false
}

// whyTimeout is the reason of an attempt that took too long.
const whyTimeout = "timeout"

// reason returns in a few words why an attempt failed. They are shown, and have
// nothing of the request in them.
func (l *attempt) reason(failure error, code int) string {
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

// unreachable reports whether no connection could be had, so that nothing was
// sent: no process listens, the name is unknown, the certificate is another's.
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
