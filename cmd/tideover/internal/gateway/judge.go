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

	"github.com/tideover/tideover/cmd/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// result is what an attempt says about the provider and the key.
type result struct {
	kind resultKind
	code int           // the status, or the one that an error event stands for; 0 without an answer
	wait time.Duration // how long the server, or the key, wants to be left alone
	told bool          // it is the server that said so
	gone bool          // quota or credit is gone, and no wait of ours helps
	why  string        // in a few words
}

type resultKind uint8

const (
	fine      resultKind = iota // it did its job, even if the answer was "no"
	neutral                     // the caller went away, or its body could not be read
	failed                      // the provider did not do its job
	throttled                   // the key was one too many
	refused                     // the key is not wanted, or has nothing left
)

// judge says what the attempt was.
func (l *leg) judge(resp *http.Response, failure error, o retry.Outcome) (r result) {
	status, _ := errors.AsType[*retryhttp.StatusError](failure)
	switch {
	case status != nil:
		r.code = status.Code
	case resp != nil:
		r.code = resp.StatusCode
	}
	r.why = l.reason(failure, r.code)
	switch {
	case resp == nil && (l.trip.gone() || l.trip.unread() != nil || o.Class == retry.ClassCanceled || errors.Is(failure, context.Canceled)):
		r.kind = neutral
	case resp == nil && shortage.Is(failure): // of this machine, of which the provider knows nothing
		r.kind = neutral
	case resp == nil && r.why == whyTimeout && l.slowUpload():
		r.kind = neutral
	case resp == nil:
		r.kind = failed
	case r.code == http.StatusTooManyRequests && failure != nil:
		r.kind, r.wait, r.told = throttled, cmp.Or(o.After, coolThrottled), true
		if reset, _ := subscriptionReset(resp.Header, time.Now()); reset > r.wait {
			r.wait = reset
		}
		if status != nil && status.Quota != "" {
			r.gone, r.wait, r.told = true, cmp.Or(o.After, coolUnpaid), o.After > 0
			r.why += " " + status.Quota
			if l.p.ring.own {
				r.kind = refused // to come more slowly is no help
			}
		}
	case l.key.refusable(r.code):
		r.kind, r.wait = refused, coolRefused
		if r.code == http.StatusPaymentRequired {
			r.wait = coolUnpaid
		}
		if told, ok := retryhttp.ServerDelay(resp.Header, time.Now()); ok && told > 0 {
			r.wait, r.told = told, true
		}
	case failure != nil && r.code != http.StatusNotImplemented && r.code != http.StatusHTTPVersionNotSupported &&
		r.code != http.StatusTooEarly && r.code != http.StatusMisdirectedRequest && r.code != http.StatusConflict:
		r.kind, r.wait = failed, o.After
	}
	return r
}

// refusable reports whether the status says that the key is not wanted, and the
// key is ours.
func (k *key) refusable(code int) bool {
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
func (l *leg) reason(failure error, code int) string {
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
// sent: nobody listens, the name is not known, the certificate is another's.
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
