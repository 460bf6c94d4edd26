package retryhttp

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/retry"
)

// Router says where each attempt of a request goes, and learns what became of
// it. It is what a client with several keys, or a gateway before several
// providers, adds to the one retry loop; see [WithRouter].
type Router interface {
	// Route is called before each attempt, which is the n-th of its request. The
	// request is the attempt's own: its URL, Host and Header may be changed. Route
	// may wait, for a turn or for a provider to come back: the request's context
	// has the deadline of the whole call, and attempt-timeout counts from when
	// Route returns. Its error is the attempt's failure: nothing was sent, and it
	// is transient unless it says otherwise (see [retry.Classified]).
	Route(req *http.Request, n int) (Leg, error)
}

// Leg is an attempt that a [Router] has let go. Its methods are called by one
// goroutine after the other.
type Leg interface {
	// Judged is called when the headers of an answer are there, or when there will
	// be none. resp is nil without an answer; failure is nil when no retry is
	// wanted, and has a [*StatusError] when the answer is a failure. o is what the
	// failure means; Judged returns it, or what it means here: a failure after
	// which another destination can be asked at once, say. A failure that must not
	// be repeated (o.Final) stays final.
	Judged(resp *http.Response, failure error, o retry.Outcome) retry.Outcome

	// Closed is called once, after Judged, when the answer's body has been read to
	// its end or closed, or when there is none. err is how reading it failed, nil
	// if it did not.
	Closed(err error)
}

// Interruptible is a [Leg] whose request has a body that may be slow to read. The
// transport of net/http does not give up an attempt while it reads the body. Interrupt is
// called when the policy's total-timeout has passed, and makes a Read that is under way
// return, and those that follow.
type Interruptible interface {
	Leg
	Interrupt()
}

// routed is a failure whose meaning the router has changed.
type routed struct {
	error
	outcome retry.Outcome
}

func (e *routed) Unwrap() error { return e.error }

// RetryOutcome implements [retry.Classified].
func (e *routed) RetryOutcome() retry.Outcome { return e.outcome }

// told tells the leg how the attempt went, and returns the failure with what the
// router makes of it.
func told(leg Leg, resp *http.Response, err error) error {
	var is retry.Outcome
	if err != nil {
		is = retry.OutcomeOf(err)
	}
	means := leg.Judged(resp, err, is)
	if err != nil && means != is {
		means.Final = means.Final || is.Final
		err = &routed{err, means}
	}
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		leg.Closed(nil)
		return err
	}
	t := &toldBody{ReadCloser: resp.Body, leg: leg}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = &toldConn{t, w}
	} else {
		resp.Body = t
	}
	return err
}

// unrouted returns the failure of an attempt that was not sent.
func (x *exchange) unrouted(err error, s *span) error {
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

// toldBody is the body of an answer, of whose end a leg is told.
type toldBody struct {
	io.ReadCloser
	leg  Leg
	told atomic.Bool
}

func (t *toldBody) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil {
		t.tell(err)
	}
	return n, err
}

func (t *toldBody) Close() error {
	err := t.ReadCloser.Close()
	t.tell(io.EOF)
	return err
}

func (t *toldBody) tell(err error) {
	if !t.told.CompareAndSwap(false, true) {
		return
	}
	if err == io.EOF { //nolint:errorlint // the end of a body is never wrapped
		err = nil
	}
	t.leg.Closed(err)
}

// toldConn is the connection after a 101. Its end of input is not its end.
type toldConn struct {
	*toldBody
	io.Writer
}

func (t *toldConn) Read(p []byte) (int, error) { return t.ReadCloser.Read(p) }

// CloseWrite closes the connection's other half, as the body of net/http does.
func (t *toldConn) CloseWrite() error { return closeWrite(t.Writer) }

func closeWrite(w io.Writer) error {
	if c, ok := w.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}

// dated is a context with the deadline of the whole call, at which another one
// ends it.
type dated struct {
	context.Context
	deadline time.Time
}

// Deadline implements [context.Context].
func (d *dated) Deadline() (time.Time, bool) { return d.deadline, true }
