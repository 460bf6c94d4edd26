package retryhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/tideover/tideover/retry"
)

// exchange is one request with all its attempts, once it is more than a first
// attempt that succeeds.
type exchange struct {
	t          *Transport
	req        *http.Request // the caller's, never changed
	idempotent bool
	body       *replay // of a body that nobody else can repeat, otherwise nil

	attempts int
	resp     *http.Response // what the last attempt brought, if it was answered
	err      error          // how the last attempt failed
	once     [2]bool        // a status that allows one retry has had it: 421, 425
}

func newExchange(t *Transport, req *http.Request) *exchange {
	x := &exchange{t: t, req: req, idempotent: t.mayRepeat(req)}
	if !t.single && oneWay(req) {
		x.body = newReplay(req)
	}
	return x
}

// first takes over after a first attempt that went out as it came.
func (x *exchange) first(resp *http.Response, err error) error {
	x.attempts = 1
	return x.judge(resp, err, nil)
}

// attempt sends the request.
func (x *exchange) attempt(ctx context.Context) error {
	if x.attempts > 0 {
		if x.replayable() != nil {
			return x.err // a classifier of the user's wanted what can't be done
		}
		x.discard()
	}
	x.attempts++
	req, s, err := x.prepare(ctx)
	if err != nil {
		return x.judge(nil, retry.Permanent(err), nil)
	}
	resp, err := x.t.next.RoundTrip(req)
	if resp, err = s.answered(resp, err); resp != nil {
		resp.Request = x.req
	}
	return x.judge(resp, err, s)
}

// prepare returns the request of the next attempt: the caller's own where that
// will do, otherwise a shallow copy, which shares the trailers that are still
// to come.
func (x *exchange) prepare(ctx context.Context) (*http.Request, *span, error) {
	body, getBody, same, err := x.nextBody()
	if err != nil {
		return nil, nil, err
	}
	s, own := newSpan(ctx, x)
	if same && s == nil {
		return x.req, nil, nil
	}
	req := x.req.WithContext(own)
	req.Body, req.GetBody = body, getBody
	return req, s, nil
}

// judge says how the attempt went: nil is a success, and an answer that no
// retry would change is one too.
func (x *exchange) judge(resp *http.Response, err error, s *span) error {
	if err != nil {
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		x.resp, x.err = nil, x.failure(err, s)
		return x.err
	}
	x.resp, x.err = resp, nil
	if resp == nil {
		return nil
	}
	if e := x.status(resp); e != nil {
		x.err = e
	}
	return x.err
}

// discard lets go of the attempt before. What there was to read of its answer
// has been read, so that its connection is free already.
func (x *exchange) discard() {
	resp := x.resp
	x.resp = nil
	if resp == nil {
		return
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	if resp.StatusCode == http.StatusMisdirectedRequest {
		x.t.CloseIdleConnections() // the next attempt needs another connection
	}
}

// finish ends the exchange, with the runner's error.
func (x *exchange) finish(err error) (*http.Response, error) {
	ended := err != nil && x.req.Context().Err() != nil
	if ended {
		x.discard()
	}
	switch {
	case x.body != nil:
		x.body.end(x.resp != nil)
	case x.attempts == 0:
		closeBody(x.req) // no attempt was made, so nobody else does
	}
	if err == nil || x.resp == nil {
		return x.resp, err
	}
	if e, ok := errors.AsType[*retry.Error](err); ok {
		x.resp.Request = x.req.WithContext(context.WithValue(x.req.Context(), gaveUpKey{}, surrender{x.resp, e}))
	}
	return x.resp, nil
}
