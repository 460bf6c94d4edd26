package retryhttp

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// verdict is the meaning of a status, before the method of the request is considered.
type verdict uint8

const (
	answer    verdict = iota // a success, or a failure that no retry would change
	permanent                // a failure of the server that no retry would change
	transient
	throttled
	onlyOnce  // one retry may help
	requested // the server asks for a retry, or the router has another target
)

// classes has the class of each verdict; a verdict that is not listed is transient.
var classes = [...]retry.Class{
	answer: retry.ClassPermanent, permanent: retry.ClassPermanent, throttled: retry.ClassThrottled, requested: retry.ClassTransient,
}

func (v verdict) class() retry.Class { return classes[v] }

// verdict classifies a response by its status and by x-should-retry, which overrides
// the status both ways.
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

// statusOverloaded is the status with which Anthropic and others report overload.
const statusOverloaded = 529

// status returns failed if the response counts as a failure, or broken if it is a stream
// that broke off before its first content.
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

// refusal returns the failure for a response with a status of 400 or more, or nil if
// it is an answer that no retry would change.
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
		// A 503 with Retry-After means that the server rejected the request unprocessed.
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

// readAhead reads the beginning of a body, if a retry is likely, so that the connection
// is free during the wait, or if the status is 429, whose body may state a quota or a
// delay. It returns the decoded beginning. The response's body still reads in full.
func (x *exchange) readAhead(resp *http.Response, e *StatusError) []byte {
	likely := e.class < retry.ClassPermanent && e.NotRetried == nil && !x.last()
	switch {
	case resp.Body == nil || resp.Body == http.NoBody:
		return nil
	case resp.StatusCode == http.StatusMisdirectedRequest:
		return nil // the connection must not be used again
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

// takeOnce reports whether the status still has its one retry, and uses it up.
func (x *exchange) takeOnce(code int) bool {
	i := 0
	if code == http.StatusTooEarly {
		i = 1
	}
	return x.once[i].CompareAndSwap(false, true)
}

// forbidden returns the error that forbids another attempt, or nil. unprocessed means
// that the server has not processed the request.
func (x *exchange) forbidden(unprocessed bool) error {
	if !unprocessed && !x.idempotent {
		return ErrNotIdempotent
	}
	return x.replayable()
}

// StatusError is an answer that counts as a failure. It is the failure of an
// attempt in events and in a [*retry.Error].
type StatusError struct {
	Code       int           // the status of the response, or the one that corresponds to Event
	Event      string        // type of the error event with which a stream of status 2xx began; "" means none
	After      time.Duration // the wait that the server asked for; 0 means none
	Quota      string        // code in the body that means that quota or credit is used up, such as insufficient_quota
	NotRetried error         // ErrNotIdempotent or ErrBody if a retry would help but is not allowed

	class retry.Class
	of    request
}

// Error returns the status and the details that the server stated.
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

// RetryNote implements [retry.Noted]. It returns the request without its query.
func (e *StatusError) RetryNote() string { return e.of.String() }

// Unwrap returns NotRetried.
func (e *StatusError) Unwrap() error { return e.NotRetried }

// RetryOutcome implements [retry.Classified].
func (e *StatusError) RetryOutcome() retry.Outcome {
	return retry.Outcome{Class: e.class, Final: e.NotRetried != nil, After: e.After}
}

// Check returns nil for a status below 400, and otherwise a [*StatusError]. It is for
// callers that retry with a [retry.Runner] instead of a [Transport]. It does not read the
// body.
func Check(resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	e := &StatusError{Code: resp.StatusCode, of: requestOf(resp.Request)}
	e.After, _ = ServerDelay(resp.Header, time.Now())
	e.class = new(settings).verdict(resp).class()
	return e
}
