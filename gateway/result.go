package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// result is what an attempt says about the provider and the key.
type result struct {
	kind        resultKind
	code        int           // the status, or the one that an error event stands for; 0 without an answer
	wait        time.Duration // until the key or the provider may be asked again
	closesScope bool          // the wait is for requests of the route and the model only
	quotaGone   bool          // quota or credit is gone, and no wait of ours helps
	why         string        // in a few words
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
	case resp == nil && (a.request.callerGone() || a.request.bodyError() != nil || o.Class == retry.ClassCanceled || errors.Is(failure, context.Canceled)):
		res.kind = neutral
	case resp == nil && shortage.Is(failure): // of this machine, of which the provider knows nothing
		res.kind = neutral
	case resp == nil && res.why == whyTimeout && a.slowUpload():
		res.kind = neutral
	case resp == nil:
		res.kind = failed
	case res.code == http.StatusTooManyRequests && failure != nil:
		res.kind, res.wait, res.closesScope = keyThrottled, cmp.Or(o.After, defaultThrottle), true
		if reset, _ := subscriptionReset(resp.Header, time.Now()); reset > res.wait {
			res.wait = reset
		}
		if status != nil && status.Quota != "" {
			res.quotaGone, res.wait, res.closesScope = true, cmp.Or(o.After, avoidUnpaid), o.After > 0
			res.why += " " + status.Quota
			if a.p.keys.own {
				res.kind = keyRejected // to come more slowly is no help
			}
		}
	case a.key.rejectedBy(res.code):
		res.kind, res.wait = keyRejected, avoidRejected
		if res.code == http.StatusPaymentRequired {
			res.wait = avoidUnpaid
		}
		if told, ok := retryhttp.ServerDelay(resp.Header, time.Now()); ok && told > 0 {
			res.wait, res.closesScope = told, true
		}
	case failure != nil && res.code != http.StatusNotImplemented && res.code != http.StatusHTTPVersionNotSupported &&
		res.code != http.StatusTooEarly && res.code != http.StatusMisdirectedRequest && res.code != http.StatusConflict:
		res.kind, res.wait = failed, o.After
	}
	return res
}

// rejectedBy reports whether the status says that the provider does not accept the key,
// and the key is ours.
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
