package retryhttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/retry"
)

// ErrNotIdempotent is why a transient failure is not retried:
// the server may have processed the request, and must not process it twice.
var ErrNotIdempotent = errors.New("the request may have been processed and is not idempotent")

// ErrBody is why a transient failure is not retried: the request's body has been sent
// and could not be stored.
var ErrBody = errors.New("the request's body can't be sent again")

func notRetried(why error) string {
	if why == nil {
		return ""
	}
	text := ": not retried: " + why.Error()
	if errors.Is(why, ErrNotIdempotent) {
		text += notIdempotentHint
	}
	return text
}

// notIdempotentHint follows ErrNotIdempotent in the texts of errors.
const notIdempotentHint = " (give it an Idempotency-Key, or use WithIdempotent)"

// failure is the failure of an attempt that got no answer.
type failure struct {
	err     error
	outcome retry.Outcome
	why     error // ErrNotIdempotent or ErrBody if a retry would help but is not allowed
	late    bool  // the attempt reached a time limit
	of      request
}

// RetryNote implements [retry.Noted]. It returns the request without its query.
func (f *failure) RetryNote() string { return f.of.String() }

// request is the part of a request that a failure keeps: enough to identify it, but
// not its body.
type request struct {
	method string
	url    *url.URL
}

func requestOf(req *http.Request) request {
	if req == nil {
		return request{}
	}
	return request{cmp.Or(req.Method, http.MethodGet), req.URL}
}

// String returns method, host and path. It omits the parts of a URL that may have
// secrets.
func (r request) String() string {
	if r.url == nil {
		return r.method
	}
	return r.method + " " + r.url.Host + r.url.EscapedPath()
}

func (f *failure) Error() string { return f.err.Error() + notRetried(f.why) }

func (f *failure) Unwrap() []error {
	if f.why == nil {
		return []error{f.err}
	}
	return []error{f.err, f.why}
}

// Is makes errors.Is match [context.DeadlineExceeded] for an attempt that reached a time
// limit, also if the transport returned another error.
func (f *failure) Is(target error) bool { return f.late && target == context.DeadlineExceeded }

// RetryOutcome implements [retry.Classified].
func (f *failure) RetryOutcome() retry.Outcome { return f.outcome }

// failure returns the error of an attempt with its outcome. req is the request of the
// attempt.
func (x *exchange) failure(err error, req *http.Request, s *attemptTimer) error {
	f := &failure{err: err, late: s.isLate(), of: requestOf(req)}
	switch {
	case canceled(x.req) || x.req.Context().Err() != nil || s != nil && s.lost:
		f.outcome.Class = retry.ClassCanceled
	case x.body != nil && x.body.failed() != nil:
		f.outcome.Class = retry.ClassPermanent
	default:
		f.outcome = outcomeOf(req, err)
	}
	if f.outcome.Class < retry.ClassPermanent {
		f.why = x.forbidden(s.unsent() || unprocessed(err))
		f.outcome.Final = f.outcome.Final || f.why != nil
	}
	return f
}

// canceled reports whether the request was canceled through the deprecated field
// Cancel.
func canceled(req *http.Request) bool {
	select {
	case <-req.Cancel: //nolint:staticcheck // http.Client still sets it
		return true
	default:
		return false
	}
}

// Classify returns the outcome of an error of a transport or a client. An unknown host, an
// invalid certificate or a wrong address is permanent. Like [Check], it is for callers
// that retry with a [retry.Runner] instead of a [Transport]. The request may be nil; if it
// is not, Classify also checks whether the request itself is invalid, which is permanent
// too.
func Classify(req *http.Request, err error) retry.Outcome { return outcomeOf(req, err) }

// outcomeOf classifies an error of a transport by its type. Where net/http has no error
// type, it checks the request itself.
func outcomeOf(req *http.Request, err error) retry.Outcome {
	if c, ok := errors.AsType[retry.Classified](err); ok {
		return c.RetryOutcome()
	}
	if unknownHost(err) || untrusted(err) || misconfigured(err) || !network(err) && req != nil && !sendable(req) {
		return retry.Outcome{Class: retry.ClassPermanent}
	}
	return retry.Outcome{}
}

func unknownHost(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// untrusted reports whether the verification of the other side failed. x509 errors
// come unwrapped from servers and transports that verify by themselves.
func untrusted(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err) || is[x509.SystemRootsError](err) ||
		is[x509.InsecureAlgorithmError](err) || is[x509.ConstraintViolationError](err) || is[tls.RecordHeaderError](err)
}

// misconfigured reports whether the address can't be dialed at all.
func misconfigured(err error) bool {
	return is[*net.AddrError](err) || is[*net.ParseError](err) || is[net.UnknownNetworkError](err) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

func network(err error) bool { return is[net.Error](err) || is[*net.OpError](err) }

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// unprocessed reports whether the error shows that the server has not processed the
// request: it was never sent, or HTTP/2 refused its stream; see [OneTry].
func unprocessed(err error) bool {
	if is[*unprocessedError](err) {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect"
	}
	if s, ok := errors.AsType[streamError](err); ok {
		return s.Code == refusedStream
	}
	return is[*net.DNSError](err)
}

// streamError has the fields of the HTTP/2 error of net/http. errors.As fills it in from
// that error.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "http2: stream error" }

const refusedStream = 7

// sendable reports whether a transport can send the request at all. If not, every
// attempt fails alike.
func sendable(req *http.Request) bool {
	u := req.URL
	return u != nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") &&
		(req.Method == "" || httpheader.IsToken(req.Method)) && validHeader(req.Header) && validHeader(req.Trailer)
}

func validHeader(h http.Header) bool {
	for name, values := range h {
		if !httpheader.IsToken(name) {
			return false
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return false
			}
		}
	}
	return true
}

// unrouted returns the failure of an attempt whose Route returned err.
func (x *exchange) unrouted(err error, s *attemptTimer) error {
	f := &failure{err: err, outcome: retry.OutcomeOf(err), of: requestOf(x.req)}
	if s != nil && s.cancel != nil && s.end(err) != nil {
		f.late = s.late
	}
	if x.req.Context().Err() != nil || s != nil && s.lost {
		f.outcome.Class = retry.ClassCanceled
	}
	s.drop()
	return f
}

// notRepeatable returns the failure of an attempt that can't be repeated, because the
// body was lost after the decision to retry. A failure that is already final is returned
// as it is: a classifier of the user decided to retry it nevertheless.
func notRepeatable(err, why error) error {
	if retry.OutcomeOf(err).Final {
		return err
	}
	return &finalError{err, why}
}

// finalError is a failure that must not be repeated.
type finalError struct{ error, why error }

func (e *finalError) Error() string { return e.error.Error() + ": not retried: " + e.why.Error() }

func (e *finalError) Unwrap() []error { return []error{e.error, e.why} }

// RetryOutcome implements [retry.Classified].
func (e *finalError) RetryOutcome() retry.Outcome {
	o := retry.OutcomeOf(e.error)
	o.Final = true
	return o
}
