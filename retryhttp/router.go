package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/tideover/tideover/retry"
)

// Router picks the target of each attempt of a request, and gets the result of the
// attempt. With it, a client with several keys or a gateway in front of several providers
// needs no retry loop of its own; see [WithRouter].
type Router interface {
	// Route is called before each attempt. n is the number of the attempt, from 1. The
	// request belongs to the attempt: Route may change its URL, Host and Header. Route
	// may wait, for example until a provider is available: the request's context
	// has the deadline of the whole call, and attempt-timeout starts when
	// Route returns. If Route returns an error, nothing is sent and the attempt fails
	// with it. The error is transient unless it is a [retry.Classified].
	Route(req *http.Request, n int) (Attempt, error)

	// Next returns the decision about a failed round. A round has one attempt, or two if
	// the policy hedges. Next is called once for each round, after Done of all its
	// attempts, but not if Route returned an error. Usually Next returns f.Decision, or
	// a wait of 0 with [retry.BySchedule] if another target can be tried at once. The
	// limits that [retry.WithReview] describes apply to its decision.
	Next(ctx context.Context, f Failure) retry.Decision
}

// Attempt is an attempt that a [Router] has routed. Its methods are never called
// concurrently, but perhaps on different goroutines.
type Attempt interface {
	// Rejected is called with a response that no retry would change, such as 401. It
	// reports whether the target rejected the credentials of the attempt and another
	// target is available: the transport then treats the response as a transient failure.
	Rejected(resp *http.Response) bool

	// Done is called when the headers of a response have arrived, or when there will be
	// no response; resp is then nil. failure is nil if no retry is needed. If the
	// response is a failure, failure has a [*StatusError]. o is the outcome of failure.
	Done(resp *http.Response, failure error, o retry.Outcome)

	// Closed is called once, after Done, when the response's body has been read to
	// its end or closed, or when there is no body. err is the error of reading the
	// body, or nil. If Next keeps the response, Closed may be called after Next.
	Closed(err error)
}

// Failure is a failed round, as [Router].Next gets it: the policy's decision and the
// attempt. For a hedged round, it is the attempt that started first.
type Failure struct {
	retry.Review
	Attempt Attempt

	// Response is nil if there was no response. Next may keep it and replace its body;
	// the transport then closes the new body.
	Response *http.Response
}

// Interruptible is an [Attempt] whose request has a body that may be slow to read. The
// transport of net/http can't end an attempt while it reads the body. Interrupt is
// called when the policy's total-timeout has passed. It must make the current Read and
// all later ones return.
type Interruptible interface {
	Attempt
	Interrupt()
}

// routedError is the failure of a routed attempt. It carries the attempt to the
// review, which then clears the fields, because errors live longer than requests.
type routedError struct {
	error
	x       *exchange
	attempt Attempt // nil after the review
	resp    *http.Response
}

func (e *routedError) Unwrap() error { return e.error }

// review asks the router for the decision about a failed round.
func (t *Transport) review(ctx context.Context, r retry.Review) retry.Decision {
	e, ok := errors.AsType[*routedError](r.Err)
	if !ok || e.attempt == nil {
		return r.Decision
	}
	f := Failure{Review: r, Attempt: e.attempt, Response: e.resp}
	lost := e.x.replayable() != nil
	if lost {
		f.Outcome.Final, f.Decision = true, retry.Decision{Stop: cmp.Or(r.Decision.Stop, retry.StopPermanent), Prev: r.State.Prev}
	}
	e.x, e.attempt, e.resp = nil, nil, nil
	d := t.router.Next(ctx, f)
	if lost && d.Stop == 0 {
		return f.Decision // the body can't be sent again
	}
	return d
}
