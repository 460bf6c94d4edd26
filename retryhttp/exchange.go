package retryhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/retry"
)

// exchange is one request with all its attempts. A transport without a router, timeouts
// and headers of its own makes one only after a first attempt that did not succeed.
type exchange struct {
	t          *Transport
	req        *http.Request // the caller's request, never changed
	idempotent bool          // the request may be processed twice
	key        string        // Idempotency-Key added by us; "" means none
	body       *replay       // stored body of a request without GetBody; otherwise nil
	before     retry.State   // attempts and time of the redirects before this request
	began      time.Time     // start of the exchange; set only with a total timeout

	runner *retry.Runner
	rounds atomic.Int32   // attempts of the runner; a hedged one counts once
	sent   atomic.Int32   // requests sent, including hedges
	over   bool           // finish was called
	resp   *http.Response // response of the last attempt; nil if there was none
	err    error          // failure of the last attempt
	once   [2]atomic.Bool // whether 421 and 425 have had the one retry that they allow
}

// newExchange returns the exchange of a request. before has the attempts and the time
// of the redirects that led to the request.
func newExchange(t *Transport, r *runnerSet, req *http.Request, before retry.State) *exchange {
	x := &exchange{t: t, req: req, idempotent: t.mayRepeat(req), before: before, runner: r.runner}
	if t.keys && !x.idempotent {
		x.key, x.idempotent = rand.Text(), true
	}
	if !t.single && oneWay(req) {
		x.body = newReplay(req)
	}
	if t.policy.TotalTimeout > 0 {
		x.began = time.Now()
	}
	return x
}

// mayRepeat reports whether the request may be processed twice.
func (s *settings) mayRepeat(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// In net/http, a key without a value marks a request as idempotent without
	// sending the header.
	_, keyed := req.Header[keyHeader]
	_, xKeyed := req.Header["X-Idempotency-Key"]
	return keyed || xKeyed || s.idempotent != nil && s.idempotent(req)
}

// first records the result of a first attempt that was sent unchanged, and returns its
// failure.
func (x *exchange) first(resp *http.Response, err error) error {
	x.sent.Store(1)
	x.rounds.Store(1)
	x.resp, x.err = x.judge(resp, err, x.req, nil, nil)
	return x.err
}

// attempt makes the next attempt and returns its failure. Runners call it.
func (x *exchange) attempt(ctx context.Context) error {
	if x.sent.Load() > 0 {
		if lost := x.replayable(); lost != nil {
			return notRepeatable(x.err, lost)
		}
	}
	x.rounds.Add(1)
	n := int(x.sent.Add(1))
	req, s, err := x.prepare(ctx, n)
	if err != nil { // x.resp stays: the caller can still get the previous answer
		x.err = x.failure(retry.Permanent(err), x.req, s)
		return x.err
	}
	x.discard(x.resp)
	x.resp, x.err = x.send(req, s, n)
	return x.err
}

// send makes the n-th attempt. If the answer is a failure, it returns both the answer
// and the failure.
func (x *exchange) send(req *http.Request, s *attemptTimer, n int) (resp *http.Response, err error) {
	var a Attempt
	if x.t.router != nil {
		if a, err = x.t.router.Route(req, n); err != nil {
			closeBody(req)
			return nil, x.unrouted(err, s)
		}
	}
	returned := false
	defer func() {
		if !returned { // the transport below panicked, and the panic continues
			s.drop()
			if a != nil {
				_ = x.done(a, s, nil, errPanic)
			}
		}
	}()
	s.begin(req, x.t, a)
	resp, err = x.t.next.RoundTrip(req)
	if resp, err = s.answered(resp, err); resp != nil {
		resp.Request = x.req
	}
	resp, err = x.judge(resp, err, req, s, a)
	if late := s.close(resp); late != nil {
		resp, err = nil, x.failure(late, req, s)
	}
	returned = true
	if a != nil {
		err = x.done(a, s, resp, err)
	}
	return resp, err
}

var errPanic = errors.New("the transport panicked")

// prepare returns the request of the n-th attempt: the caller's own request if it can be
// sent unchanged, otherwise a shallow copy. The copy shares the trailers, which the
// caller may set later.
func (x *exchange) prepare(ctx context.Context, n int) (*http.Request, *attemptTimer, error) {
	body, getBody, same, err := x.nextBody(n)
	if err != nil {
		return nil, nil, err
	}
	s, own := newAttemptTimer(ctx, x)
	if same && s == nil && !x.t.marks(x.key) {
		return x.req, nil, nil
	}
	req := x.req.WithContext(own)
	if x.body == nil {
		body = s.pausing(body)
	} else {
		x.body.time(body, s)
	}
	req.Body, req.GetBody = body, getBody
	if x.t.marks(x.key) {
		x.t.mark(req, x.key, n)
	}
	return req, s, nil
}

// nextBody returns body and GetBody of the n-th attempt. own is true if they are
// those of the caller's request.
func (x *exchange) nextBody(n int) (body io.ReadCloser, get func() (io.ReadCloser, error), own bool, err error) {
	switch {
	case x.body != nil:
		return x.body.next(), x.body.get, false, nil
	case n > 1 && hasBody(x.req):
		body, err = x.req.GetBody()
		return body, x.req.GetBody, false, err
	default:
		return x.req.Body, x.req.GetBody, true, nil
	}
}

// replayable returns why the body can't be sent again, or nil.
func (x *exchange) replayable() error {
	if x.body == nil {
		return nil
	}
	return x.body.store.lost()
}

// judge classifies the result of an attempt. It returns no error for a success and for
// an answer that no retry would change. a is the router's attempt; nil without a router.
func (x *exchange) judge(resp *http.Response, err error, req *http.Request, s *attemptTimer, a Attempt) (*http.Response, error) {
	if err == nil {
		if resp == nil || resp.StatusCode < http.StatusBadRequest && !x.t.holds(resp) {
			return resp, nil
		}
		var e error
		if e, err = x.status(resp, req, a); e != nil || err == nil {
			return resp, e
		}
	}
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	return nil, x.failure(err, req, s)
}

// done reports the end of the attempt to the router's attempt a, and makes the response
// body report its end later. It returns the failure, with a added for the review.
func (x *exchange) done(a Attempt, s *attemptTimer, resp *http.Response, err error) error {
	var o retry.Outcome
	if err != nil {
		o = retry.OutcomeOf(err)
	}
	a.Done(resp, err, o)
	switch {
	case resp == nil || resp.Body == nil || resp.Body == http.NoBody:
		a.Closed(nil)
	default:
		var b *attemptBody
		if s != nil {
			b = &s.routed
		} else {
			b = new(attemptBody)
		}
		b.ReadCloser, b.attempt = resp.Body, a
		resp.Body = upgradable(b, resp.Body)
	}
	if err == nil {
		return nil
	}
	return &routedError{err, x, a, resp}
}

// attemptBody is a response body that reports its end to the router's attempt.
type attemptBody struct {
	io.ReadCloser
	attempt  Attempt
	reported atomic.Bool
}

func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.report(err)
	}
	return n, err
}

func (b *attemptBody) Close() error {
	err := b.ReadCloser.Close()
	b.report(io.EOF)
	return err
}

func (b *attemptBody) report(err error) {
	if !b.reported.CompareAndSwap(false, true) {
		return
	}
	if err == io.EOF { //nolint:errorlint // the end of a body is never wrapped
		err = nil
	}
	b.attempt.Closed(err)
}

// discard closes an answer that the caller will not get. readAhead has already read its
// beginning, which is usually all of it, so that the connection can be used again.
func (x *exchange) discard(resp *http.Response) {
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

// finish ends the exchange and returns the result for the caller. err is the runner's
// error.
func (x *exchange) finish(err error) (*http.Response, error) {
	x.over = true
	if err != nil && x.req.Context().Err() != nil {
		x.discard(x.resp)
		x.resp = nil
	}
	switch {
	case x.body != nil:
		x.body.end(x.resp != nil)
	case x.sent.Load() == 0:
		closeBody(x.req) // no attempt was made, so nothing else closes the body
	}
	if err == nil {
		x.redirected()
		return x.resp, nil
	}
	if x.resp == nil {
		return nil, x.t.callersError(x.req, err)
	}
	if e, ok := errors.AsType[*retry.Error](err); ok {
		x.note(gaveUpKey{}, surrender{x.resp, e})
	}
	return x.resp, nil
}

// abandon ends the use of the request's body if a panic prevents the call of finish.
func (x *exchange) abandon() {
	if !x.over && x.body != nil {
		x.body.end(false)
	}
}

// note stores a value in the context of the answer's request. There it stays available if
// another layer wraps the body of the answer.
func (x *exchange) note(key, value any) {
	x.resp.Request = x.req.WithContext(context.WithValue(x.req.Context(), key, value))
}

// spentKey is the context key of a [retry.State] in the request of a redirect answer:
// the attempts and the time that were used before the redirect.
type spentKey struct{}

// redirected stores the attempts and the time used so far, if the answer is a redirect.
func (x *exchange) redirected() {
	if x.resp == nil || x.resp.StatusCode/100 != 3 || x.resp.Header.Get("Location") == "" {
		return
	}
	spent := retry.State{Attempt: x.before.Attempt + int(x.rounds.Load()) - 1, Elapsed: x.before.Elapsed}
	if !x.began.IsZero() {
		spent.Elapsed += time.Since(x.began)
	}
	if spent != (retry.State{}) {
		x.note(spentKey{}, spent)
	}
}

// spentBefore returns the attempts and the time used by the redirects that led to the
// request. [http.Client] sets req.Response to the redirect that it follows.
func spentBefore(req *http.Request) (s retry.State) {
	if r := req.Response; r != nil && r.Request != nil {
		s, _ = r.Request.Context().Value(spentKey{}).(retry.State)
	}
	return s
}

// The headers with which layers tell each other about attempts.
const (
	attemptHeader = "X-Tideover-Attempt"
	layerHeader   = "X-Tideover-Layer"
	keyHeader     = "Idempotency-Key"
)

// marks reports whether attempts need headers of their own. key is the Idempotency-Key
// added by us; "" means none.
func (t *Transport) marks(key string) bool {
	return key != "" || t.layer != "" || len(t.deadlines) > 0 || t.router != nil
}

// mark adds headers to the request of the n-th attempt, except the deadline: that is
// known only after routing, which may wait.
func (t *Transport) mark(req *http.Request, key string, n int) {
	if req.Header = req.Header.Clone(); req.Header == nil {
		req.Header = http.Header{}
	}
	if t.router != nil {
		req.URL = new(*req.URL) // a copy, because the router may change the URL
	}
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	if layer := t.layer; layer != "" {
		if n == 1 {
			req.Header[attemptHeader] = firstAttempt
		} else {
			req.Header.Set(attemptHeader, strconv.Itoa(n))
		}
		if above := httpheader.First(req.Header, layerHeader); above != "" && len(above) < maxLayers {
			req.Header[layerHeader] = []string{above + ", " + layer}
		} else {
			req.Header[layerHeader] = t.layers
		}
	}
}

// firstAttempt is the header value of a first attempt. All requests share it, so it must
// not be changed.
var firstAttempt = []string{"1"}

// maxLayers is the length from which on the header is replaced by this layer's own name,
// so that a loop of layers does not grow the header without end.
const maxLayers = 256

// markDeadline sets the headers that tell the server how long the attempt may take. If
// the request already has such headers, it updates those; otherwise it sets the headers
// in names, which are canonical. Without a limit it removes the headers, because the
// value that a layer before us wrote is out of date.
func markDeadline(call context.Context, req *http.Request, names []string, limit time.Duration) {
	left, limited := limit, limit > 0
	for _, ctx := range []context.Context{req.Context(), call} {
		if at, ok := ctx.Deadline(); ok {
			if d := max(time.Until(at), 0); !limited || d < left {
				left, limited = d, true
			}
		}
	}
	if restateDeadline(req.Header, left, limited) {
		return
	}
	for _, name := range names {
		delete(req.Header, name)
		if v, ok := formatBudget(name, left); ok && limited {
			req.Header[name] = []string{v}
		}
	}
}
