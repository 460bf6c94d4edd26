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

// ErrNotIdempotent is why a failure is not retried that might be cured by it:
// the request may have been processed, and must not be twice.
var ErrNotIdempotent = errors.New("the request may have been processed and is not idempotent")

// ErrBody is why a failure is not retried that might be cured by it: the
// request's body has been sent and could not be kept.
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

// notIdempotentHint stands behind ErrNotIdempotent in the texts of errors.
const notIdempotentHint = " (give it an Idempotency-Key, or use WithIdempotent)"

// failure is an attempt that was not answered.
type failure struct {
	err     error
	outcome retry.Outcome
	why     error // ErrNotIdempotent or ErrBody, when that alone forbids a retry
	late    bool  // the attempt's time was up
	of      request
}

// RetryNote implements [retry.Noted]: the request, without its query.
func (f *failure) RetryNote() string { return f.of.String() }

// request is what a failure remembers of its request: enough to tell it from others,
// and nothing that keeps its body alive.
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

// String returns method, host and path. The rest of an address may have secrets in it.
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

// Is makes an attempt whose time was up a [context.DeadlineExceeded], also if the
// transport returned another error.
func (f *failure) Is(target error) bool { return f.late && target == context.DeadlineExceeded }

// RetryOutcome implements [retry.Classified].
func (f *failure) RetryOutcome() retry.Outcome { return f.outcome }

// failure returns the error of an attempt, with what it means. The request is the
// attempt's own.
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

// canceled reports whether the request was canceled in the way that is older
// than contexts.
func canceled(req *http.Request) bool {
	select {
	case <-req.Cancel: //nolint:staticcheck // http.Client still sets it
		return true
	default:
		return false
	}
}

// Classify returns what an error of a transport, or of a client, means for the
// next attempt: an unknown host, a certificate or an address that is wrong is
// permanent. It is for a runner around the whole exchange, as Check is. The
// request, if it is there, tells what else is wrong that no retry cures.
func Classify(req *http.Request, err error) retry.Outcome { return outcomeOf(req, err) }

// outcomeOf says what an error of a transport means, by its type. Where
// net/http has no type, the request itself is looked at.
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

// untrusted reports whether the other side is not who it should be. x509 errors
// come alone from servers and transports that verify by themselves.
func untrusted(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err) || is[x509.SystemRootsError](err) ||
		is[x509.InsecureAlgorithmError](err) || is[x509.ConstraintViolationError](err) || is[tls.RecordHeaderError](err)
}

// misconfigured reports whether the address can't be dialed by anybody.
func misconfigured(err error) bool {
	return is[*net.AddrError](err) || is[*net.ParseError](err) || is[net.UnknownNetworkError](err) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

func network(err error) bool { return is[net.Error](err) || is[*net.OpError](err) }

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// unprocessed reports whether the error says that the server has not seen the
// request: it was never sent, or it came back from HTTP/2 as refused. Requests
// refused by GOAWAY are sent again by net/http itself.
func unprocessed(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect"
	}
	if s, ok := errors.AsType[streamError](err); ok {
		return s.Code == refusedStream
	}
	return is[*net.DNSError](err)
}

// streamError has the shape of the HTTP/2 error of net/http, which fills it in
// for errors.As.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "http2: stream error" }

const refusedStream = 7

// sendable reports whether a transport can do anything with the request. An
// error for a request that is not sendable will come again.
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

// unrouted returns the failure of an attempt that was not sent.
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

// notRepeatable returns the failure of an attempt after which no other can be made,
// because the body was lost after the decision to go on. A failure that is final already
// stays as it is: a classifier of the user's wanted what can't be done.
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
