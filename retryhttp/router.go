package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/tideover/tideover/retry"
)

// Router picks the target of each attempt of a request, and gets the result of the
// attempt. A client with several keys, or a gateway in front of several providers, needs no
// retry loop of its own; see [WithRouter].
type Router interface {
	// Route is called before each attempt, which is the n-th of its request. The
	// request is the attempt's own: its URL, Host and Header may be changed. Route
	// may wait, for a turn or for a provider to come back: the request's context
	// has the deadline of the whole call, and attempt-timeout counts from when
	// Route returns. Its error is the attempt's failure: nothing was sent, and it
	// is transient unless it says otherwise (see [retry.Classified]).
	Route(req *http.Request, n int) (Attempt, error)

	// Next returns what follows a failed round. It is called once for each, after Done
	// of its attempts: a round has two attempts if the policy hedges. A round that
	// Route has refused is not shown. Usually Next returns f.Decision, or a wait of 0
	// by [retry.BySchedule] if another target can be asked at once. The limits of
	// [retry.WithReview] hold for its decision.
	Next(ctx context.Context, f Failure) retry.Decision
}

// Attempt is an attempt that a [Router] has routed. Its methods are called by one
// goroutine after the other.
type Attempt interface {
	// Rejected is called with a response that no retry would change, such as 401. It
	// reports whether the target has rejected the credentials of the attempt and there
	// is another target: the response is then a failure that is worth a retry.
	Rejected(resp *http.Response) bool

	// Done is called when the head of a response is there, or when there will be none.
	// resp is nil without a response; failure is nil when no retry is wanted, and has a
	// [*StatusError] when the response is a failure. o is what the failure means.
	Done(resp *http.Response, failure error, o retry.Outcome)

	// Closed is called once, after Done, when the response's body has been read to
	// its end or closed, or when there is none. err is how reading it failed, nil
	// if it did not. If Next keeps the response, that may be later than Next.
	Closed(err error)
}

// Failure is a failed round, as [Router].Next sees it: the decision about it, and its
// attempt. Of a hedged round, it is the one that started first.
type Failure struct {
	retry.Review
	Attempt Attempt

	// Response is nil without a response. Next may keep it: if the body is replaced,
	// the transport closes the new one.
	Response *http.Response
}

// Interruptible is an [Attempt] whose request has a body that may be slow to read. The
// transport of net/http does not give up an attempt while it reads the body. Interrupt is
// called when the policy's total-timeout has passed, and makes a Read that is under way
// return, and those that follow.
type Interruptible interface {
	Attempt
	Interrupt()
}

// routedError is the failure of an attempt that was routed. It takes the attempt to the
// review of the decision, and forgets it there: errors live longer than requests.
type routedError struct {
	error
	x       *exchange
	attempt Attempt // nil after the review
	resp    *http.Response
}

func (e *routedError) Unwrap() error { return e.error }

// review asks the router what follows a failed round.
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
		return f.Decision // there is no body for another attempt
	}
	return d
}
