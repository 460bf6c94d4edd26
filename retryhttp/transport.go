package retryhttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Transport is an [http.RoundTripper] that repeats a failed request if a retry may
// help and does no harm. Make it with [New]. It never changes, and all goroutines may
// share it.
type Transport struct {
	given   http.RoundTripper // the transport below, as the caller of New gave it
	next    http.RoundTripper // the same, or OneTry of it
	policy  retry.Policy
	whole   runnerSet     // for a request that is not a retry of a layer before us
	half    runnerSet     // for a request that a layer before us is retrying: half the attempts
	limit   time.Duration // attempt-timeout if there is a router; the runner then has none
	timed   bool          // attempts have time limits or hedges, so they need an attemptTimer
	bare    bool          // the first attempt needs nothing but the transport below
	managed bool          // the first attempt may send a changed copy of the caller's request
	single  bool          // the policy makes one attempt, so no body is stored for another
	layers  []string      // value of the layer header of a request without one; never changed
	settings
}

// runnerSet has the runners that make the attempts of a request.
type runnerSet struct {
	runner *retry.Runner
	hedger *retry.Hedger // nil without hedging
}

// New returns a transport that sends requests through next under the policy.
// A nil next means [http.DefaultTransport]. An [*http.Transport] is used with [OneTry].
// New returns an error if the policy is not valid or has reset-after, which is for
// sessions.
func New(policy retry.Policy, next http.RoundTripper, opts ...Option) (*Transport, error) {
	s, err := apply(opts)
	if next == nil {
		next = http.DefaultTransport
	}
	t := &Transport{given: next, policy: policy, settings: s}
	if err = errors.Join(err, t.build()); err != nil {
		return nil, refusal("New", err)
	}
	t.prepare()
	return t, nil
}

// Must is [New] for package variables and tests: it panics with the error that New
// would return. It accepts a policy or the text form of one, as [retry.Parse] reads it.
func Must[P retry.Policy | string](policy P, next http.RoundTripper, opts ...Option) *Transport {
	p, _ := any(policy).(retry.Policy)
	if text, ok := any(policy).(string); ok {
		var err error
		if p, err = retry.Parse(text); err != nil {
			panic(refusal("Must", err))
		}
	}
	t, err := New(p, next, opts...)
	if err != nil {
		panic(err)
	}
	return t
}

// prepare computes the fields that follow from the policy, the settings and the runners.
func (t *Transport) prepare() {
	p, s := &t.policy, &t.settings
	t.single, t.layers = p.Retries() == 0, []string{s.layer}
	t.timed = p.AttemptTimeout > 0 || p.TotalTimeout > 0 || p.Hedge != (retry.Hedge{}) || s.streams.Idle > 0 || s.streams.Sized > 0
	t.managed = t.timed || s.router != nil || s.layer != "" || s.keys || len(s.deadlines) > 0
	t.bare = !t.managed && p.Budget == (limit.BudgetSpec{}) && len(s.retry) == 0
	t.next = t.given
	if n, ok := t.given.(*http.Transport); ok && n != nil && !(t.bare && t.single) { // a bare transport with one attempt changes nothing
		t.next = OneTry(n)
	}
	t.half = t.whole
	if n := p.Attempts; n > 1 {
		t.half = t.whole.withAttempts((n + 1) / 2)
	}
}

// build makes the runners of the transport.
func (t *Transport) build() error {
	p, opts := t.policy, t.retry
	refused := p.Refuse("an HTTP transport", "reset-after")
	p.ResetAfter = 0 // reported once, by the line above
	if t.router != nil {
		t.limit, p.AttemptTimeout = p.AttemptTimeout, 0
		opts = append(slices.Clip(opts), retry.WithReview(t.review))
	}
	return errors.Join(refused, t.whole.make(p, opts))
}

// WithAttempts returns a transport that makes up to n attempts and shares everything
// else with this one, like [retry.Runner.WithAttempts]. An n below 1 means one attempt.
func (t *Transport) WithAttempts(n int) *Transport {
	own := *t
	own.policy.Attempts = max(n, 1)
	own.whole = t.whole.withAttempts(n)
	own.prepare()
	return &own
}

// WithHedge returns a transport that hedges and shares everything else with this one.
// It has its own statistics of latency. It returns an error if the hedge is zero or not
// valid.
func (t *Transport) WithHedge(h retry.Hedge) (*Transport, error) {
	hedger, err := t.whole.runner.WithHedge(h)
	if err != nil {
		return nil, err
	}
	own := *t
	own.policy.Hedge = h
	own.whole = runnerSet{hedger.Runner(), hedger}
	own.prepare()
	return &own, nil
}

// make makes the hedger, if the policy has a hedge, and the runner.
func (r *runnerSet) make(p retry.Policy, opts []retry.Option) (err error) {
	if p.Hedge == (retry.Hedge{}) {
		r.runner, err = retry.New(p, opts...)
		return err
	}
	if r.hedger, err = retry.NewHedger(p, opts...); err == nil {
		r.runner = r.hedger.Runner()
	}
	return err
}

func (r runnerSet) withAttempts(n int) runnerSet {
	if r.hedger == nil {
		return runnerSet{runner: r.runner.WithAttempts(n)}
	}
	h := r.hedger.WithAttempts(n)
	return runnerSet{h.Runner(), h}
}

// Policy returns the transport's policy.
func (t *Transport) Policy() retry.Policy { return t.policy }

// CloseIdleConnections closes the idle connections of the transport below, if
// it can. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if t != nil {
		closeIdle(t.next)
	}
}

func closeIdle(t http.RoundTripper) {
	if c, ok := t.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper]. If it gives up after a response, it
// returns that response, and [GaveUp] says why. If it gives up after an error, it
// returns a [*retry.Error], which is a [net.Error]. If the caller cancels the
// request's context without a cause, the error is [context.Canceled].
// A transport that makes one attempt and has no other setting returns the error of the
// transport below unchanged.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || !t.bare || req.Response != nil || !t.single && oneWay(req) || req.Context().Err() != nil {
		return t.roundTrip(req)
	}
	// A bare transport passes the first attempt on unchanged. If it succeeds, there is
	// nothing else to do.
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp != nil && resp.StatusCode < http.StatusBadRequest && t.streams.Hold == 0 {
		return resp, nil
	}
	return t.after(req, resp, err)
}

// after continues after a first attempt that was sent unchanged.
func (t *Transport) after(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err == nil && t.plain(resp) {
		return resp, nil
	}
	r := t.runners(req)
	x := newExchange(t, r, req, retry.State{})
	failed := x.first(resp, err)
	defer x.abandon()
	return x.finish(r.runner.Continue(req.Context(), failed, x.attempt))
}

// runners returns the runners for the request: those with half the attempts if a layer
// before us is retrying it.
func (t *Transport) runners(req *http.Request) *runnerSet {
	if inboundRetries(req.Context()) > 0 {
		return &t.half
	}
	return &t.whole
}

// roundTrip is RoundTrip for requests that need more than one unchanged attempt.
func (t *Transport) roundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.whole.runner == nil {
		closeBody(req)
		return nil, errors.New("retryhttp: the Transport was not made by New")
	}
	r := t.runners(req)
	if t.managed || req.Response != nil || !t.single && oneWay(req) {
		return t.exchange(r, req)
	}
	// While x is nil, attempts send the caller's request unchanged, which allocates nothing.
	var x *exchange
	var resp *http.Response
	err := r.runner.Do(req.Context(), func(ctx context.Context) (err error) {
		if x != nil {
			return x.attempt(ctx)
		}
		resp, err = t.next.RoundTrip(req)
		if err == nil && t.plain(resp) {
			return nil
		}
		x = newExchange(t, r, req, retry.State{})
		return x.first(resp, err)
	})
	switch {
	case x != nil:
		return x.finish(err)
	case err != nil:
		closeBody(req) // no attempt was made, so nothing else closes the body
		return nil, t.callersError(req, err)
	}
	return resp, nil
}

// callersError returns the error for a caller whose request got no answer.
//
// If the caller canceled the request, the error is [context.Canceled] itself, as from
// net/http, because callers compare with it. If the transport makes one attempt and has
// no other setting, it is the error of that attempt.
func (t *Transport) callersError(req *http.Request, err error) error {
	if ctx := req.Context(); ctx.Err() == context.Canceled && context.Cause(ctx) == context.Canceled { //nolint:errorlint // the very value
		return context.Canceled
	}
	if !t.bare || !t.single {
		return err
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.err
	}
	if cause := context.Cause(req.Context()); cause != nil { // no attempt was made
		return cause
	}
	return err
}

// exchange makes a request that needs an exchange from its first attempt on.
func (t *Transport) exchange(r *runnerSet, req *http.Request) (*http.Response, error) {
	before := spentBefore(req)
	if r.hedger != nil && before == (retry.State{}) && t.hedgeable(req) {
		return t.hedged(r, req)
	}
	x := newExchange(t, r, req, before)
	defer x.abandon()
	return x.finish(r.runner.Resume(req.Context(), before, x.attempt))
}

// plain reports whether the response of a first attempt needs no retry decision.
func (t *Transport) plain(resp *http.Response) bool {
	if resp == nil {
		return true
	}
	if resp.StatusCode < http.StatusBadRequest {
		return !t.holds(resp)
	}
	return t.verdict(resp) == answer
}

// oneWay reports whether the request has a body without GetBody.
func oneWay(req *http.Request) bool { return hasBody(req) && req.GetBody == nil }

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

func closeBody(req *http.Request) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close()
	}
}

// holds reports whether the answer is an event stream to hold back until its first
// content. An encoded stream is not, because its events can't be read.
func (t *Transport) holds(resp *http.Response) bool {
	if t.streams.Hold == 0 || resp.StatusCode/100 != 2 || resp.Body == nil || resp.Body == http.NoBody || !IsEventStream(resp.Header) {
		return false
	}
	code := resp.Header.Get("Content-Encoding")
	return code == "" || code == "identity"
}

// IsEventStream reports whether the headers of an answer are those of an event stream.
func IsEventStream(h http.Header) bool {
	const events = "text/event-stream"
	kind := httpheader.First(h, "Content-Type")
	return len(kind) >= len(events) && strings.EqualFold(kind[:len(events)], events) &&
		(len(kind) == len(events) || strings.ContainsRune("; \t", rune(kind[len(events)])))
}

// gaveUpKey is the context key of a surrender, in the request of a response.
type gaveUpKey struct{}

// surrender is the error with which the transport gave up, and the response that it
// returned. GaveUp compares the response, because a request that the caller sends again
// has the same context.
type surrender struct {
	resp *http.Response
	err  *retry.Error
}

// GaveUp returns why the transport gave up, if the response is a failure that was not
// retried further. It returns false for a success, and for an answer that
// no retry would change, such as 404.
//
// The transport stores the reason in the context of resp.Request.
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
