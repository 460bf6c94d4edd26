package retryhttp

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

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

// gaveUpKey is the key of a surrender in the context of a response's request.
type gaveUpKey struct{}

// surrender is why the transport gave up, on which response: its request may be
// sent again.
type surrender struct {
	resp *http.Response
	err  *retry.Error
}

// GaveUp returns why the transport gave up, when the response is a failure that
// no further attempt followed. It is false for a success, and for an answer that
// no retry would change, such as 404.
//
// The reason is in the context of resp.Request.
func GaveUp(resp *http.Response) (*retry.Error, bool) {
	if resp == nil || resp.Request == nil {
		return nil, false
	}
	s, ok := resp.Request.Context().Value(gaveUpKey{}).(surrender)
	if !ok || s.resp != resp {
		return nil, false
	}
	return s.err, true
}
