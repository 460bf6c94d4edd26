package retryhttp

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// verdict is what a status means before the request is looked at.
type verdict uint8

const (
	answer    verdict = iota // no failure, or one that no retry would change
	permanent                // a failure of the server that will stay
	transient
	throttled
	onlyOnce  // one retry may help
	requested // the server asks for a retry, or the router has another target
)

// classes has the class of each verdict; those that are not listed are transient.
var classes = [...]retry.Class{
	answer: retry.ClassPermanent, permanent: retry.ClassPermanent, throttled: retry.ClassThrottled, requested: retry.ClassTransient,
}

func (v verdict) class() retry.Class { return classes[v] }

// verdict reads the status and x-should-retry, which overrides it both ways.
func (s *settings) verdict(resp *http.Response) verdict {
	v := s.ofStatus(resp.StatusCode)
	if resp.StatusCode < http.StatusBadRequest {
		return v
	}
	switch resp.Header.Get(shouldRetry) {
	case "true":
		if v != throttled {
			v = requested
		}
	case "false":
		if v != answer {
			v = permanent
		}
	}
	return v
}

func (s *settings) ofStatus(code int) verdict {
	switch code {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, statusOverloaded:
		return transient
	case http.StatusTooManyRequests:
		return throttled
	case http.StatusMisdirectedRequest, http.StatusTooEarly:
		return onlyOnce
	case http.StatusConflict:
		if s.conflict {
			return transient
		}
	}
	if code >= http.StatusInternalServerError {
		return permanent
	}
	return answer
}

// shouldRetry is the header with which a server overrides its status.
const shouldRetry = "X-Should-Retry"

// statusOverloaded is what Anthropic and others answer when they have no room.
const statusOverloaded = 529

// status returns the failure that the response is, or nil. The error is that of
// a stream which broke off before it had begun.
func (x *exchange) status(resp *http.Response, req *http.Request, a Attempt) (failed, broken error) {
	var e *StatusError
	var err error
	if resp.StatusCode < http.StatusBadRequest {
		e, err = x.opening(resp)
	} else {
		e = x.refusal(resp, a)
	}
	if e == nil {
		return nil, err
	}
	e.of = requestOf(req)
	return e, nil
}

// refusal returns the failure that a status from 400 on is, or nil.
func (x *exchange) refusal(resp *http.Response, a Attempt) *StatusError {
	v := x.t.verdict(resp)
	rejected := v == answer && a != nil && a.Rejected(resp)
	switch {
	case rejected:
		v = requested
	case v == answer:
		return nil
	}
	e := &StatusError{Code: resp.StatusCode, class: v.class()}
	now := time.Now()
	after, stated := retryAfter(resp.Header, now)
	if v == onlyOnce && !x.takeOnce(resp.StatusCode) {
		e.class = retry.ClassPermanent
	}
	if e.class < retry.ClassPermanent {
		// A failure in 503 with Retry-After comes from the door, not from the work.
		unprocessed := v == throttled || v == onlyOnce || v == requested ||
			resp.StatusCode == http.StatusServiceUnavailable && stated
		e.NotRetried = x.forbidden(unprocessed || x.t.answered)
	}
	if head := x.readAhead(resp, e); head != nil {
		p := parseProblem(head)
		if e.Quota = p.quota(); e.Quota != "" && !rejected && resp.Header.Get(shouldRetry) != "true" {
			e.class = retry.ClassPermanent
		}
		if !stated {
			after, stated = p.retryDelay()
		}
	}
	if !stated {
		after, _ = resetDelay(resp.Header, now)
	}
	e.After = after
	return e
}

// readAhead reads the beginning of a body that is likely to be discarded, so
// that its connection is free during the wait, or that has something to say.
// The body comes back whole.
func (x *exchange) readAhead(resp *http.Response, e *StatusError) []byte {
	likely := e.class < retry.ClassPermanent && e.NotRetried == nil && !x.last()
	switch {
	case resp.Body == nil || resp.Body == http.NoBody:
		return nil
	case resp.StatusCode == http.StatusMisdirectedRequest:
		return nil // its connection must not go back to the others
	case !likely && resp.StatusCode != http.StatusTooManyRequests:
		return nil
	}
	p, _ := peek(resp.Body, peekTime, 0, nil)
	resp.Body = p
	head, _ := p.result()
	if len(resp.Header["Content-Encoding"]) > 0 {
		head = x.t.decoded(resp.Header, head)
	}
	return head
}

// last reports whether the policy allows no further attempt.
func (x *exchange) last() bool {
	most := x.runner.Policy().Retries()
	return most != retry.Unlimited && x.before.Attempt+int(x.rounds.Load()) > most
}

// takeOnce reports whether the status has its one retry left, and takes it.
func (x *exchange) takeOnce(code int) bool {
	i := 0
	if code == http.StatusTooEarly {
		i = 1
	}
	return x.once[i].CompareAndSwap(false, true)
}

// forbidden returns what forbids another attempt, or nil. unprocessed says that
// the server did not do what was asked.
func (x *exchange) forbidden(unprocessed bool) error {
	if !unprocessed && !x.idempotent {
		return ErrNotIdempotent
	}
	return x.replayable()
}

// StatusError is an answer that counts as a failure. It is the failure of an
// attempt in events and in a [*retry.Error].
type StatusError struct {
	Code       int           // the status, or the one that Event stands for
	Event      string        // the error with which a stream began whose status was a success; "" means none
	After      time.Duration // the wait that the server asked for; 0 means none
	Quota      string        // the code in the body which says that quota or credit is gone, such as insufficient_quota
	NotRetried error         // ErrNotIdempotent or ErrBody, when that alone forbids a retry

	class retry.Class
	of    request
}

// Error says what was answered.
func (e *StatusError) Error() string {
	s := strings.TrimRight(fmt.Sprintf("status %d %s", e.Code, http.StatusText(e.Code)), " ")
	if e.Event != "" {
		s += " (" + e.Event + " as the first event of a stream)"
	}
	if e.Quota != "" {
		s += ": " + e.Quota
	}
	if e.After > 0 {
		s += ", asks to wait " + e.After.Round(time.Millisecond).String()
	}
	return s + notRetried(e.NotRetried)
}

// RetryNote implements [retry.Noted]: the request, without its query.
func (e *StatusError) RetryNote() string { return e.of.String() }

// Unwrap returns what forbids a retry.
func (e *StatusError) Unwrap() error { return e.NotRetried }

// RetryOutcome implements [retry.Classified].
func (e *StatusError) RetryOutcome() retry.Outcome {
	return retry.Outcome{Class: e.class, Final: e.NotRetried != nil, After: e.After}
}

// Check returns nil for a status below 400, and otherwise a [*StatusError] for
// use by a runner around the whole exchange. It does not read the body.
func Check(resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	e := &StatusError{Code: resp.StatusCode, of: requestOf(resp.Request)}
	e.After, _ = ServerDelay(resp.Header, time.Now())
	e.class = new(settings).verdict(resp).class()
	return e
}
