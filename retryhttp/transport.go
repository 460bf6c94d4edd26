package retryhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tideover/tideover/retry"
)

// Transport is an [http.RoundTripper] that sends a request again when that may
// help and can do no harm. It is made by [New], never changes, and is shared by
// all goroutines.
type Transport struct {
	next   http.RoundTripper
	runner *retry.Runner
	timed  bool // an attempt has a deadline of its own
	single bool // the policy makes one attempt, so that nothing is kept for another
	settings
}

// New returns a transport that sends requests through next, as the policy says.
// A nil next is [http.DefaultTransport]. A policy that is not valid, or that
// has a key which the transport can't honour, is an error: reset-after belongs
// to sessions, and a request is not hedged.
func New(policy retry.Policy, next http.RoundTripper, opts ...Option) (*Transport, error) {
	s, err := apply(opts)
	refused := policy.Refuse("an HTTP transport", "reset-after", "hedge")
	if refused != nil {
		policy.ResetAfter, policy.Hedge = 0, retry.Hedge{} // said once
	}
	runner, invalid := retry.New(policy, s.retry...)
	if err = errors.Join(err, refused, invalid); err != nil {
		return nil, fmt.Errorf("retryhttp.New: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if next == nil {
		next = http.DefaultTransport
	}
	return &Transport{
		next: next, runner: runner, settings: s,
		timed:  policy.AttemptTimeout > 0 || policy.TotalTimeout > 0,
		single: policy.Retries() == 0,
	}, nil
}

// Policy returns the transport's policy.
func (t *Transport) Policy() retry.Policy { return t.runner.Policy() }

// CloseIdleConnections closes the idle connections of the transport below, if
// it can. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper]. When it gives up on a response it
// returns that response, and [GaveUp] says why; when it gives up on an error,
// the error is a [*retry.Error].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.runner == nil {
		closeBody(req)
		return nil, errors.New("retryhttp: the Transport was not made by New")
	}
	// While x is nil the request goes out as it came. That is all there is to a
	// first attempt which succeeds, and why it allocates nothing.
	var x *exchange
	if t.timed || !t.single && oneWay(req) {
		x = newExchange(t, req)
	}
	var resp *http.Response
	err := t.runner.Do(req.Context(), func(ctx context.Context) (err error) {
		if x != nil {
			return x.attempt(ctx)
		}
		resp, err = t.next.RoundTrip(req)
		if err == nil && (resp == nil || resp.StatusCode < http.StatusBadRequest || t.verdict(resp) == answer) {
			return nil
		}
		x = newExchange(t, req)
		return x.first(resp, err)
	})
	switch {
	case x != nil:
		return x.finish(err)
	case err != nil:
		closeBody(req) // no attempt was made, so nobody else does
		return nil, err
	}
	return resp, nil
}

// oneWay reports whether the request has a body that nobody but we can repeat.
func oneWay(req *http.Request) bool { return hasBody(req) && req.GetBody == nil }

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

func closeBody(req *http.Request) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close()
	}
}
