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

// Transport is an [http.RoundTripper] that sends a request again when that may
// help and can do no harm. It is made by [New], never changes, and is shared by
// all goroutines.
type Transport struct {
	next    http.RoundTripper
	policy  retry.Policy
	whole   runnerSet     // for a request of which this is the first try
	half    runnerSet     // for one that a caller before us is retrying
	limit   time.Duration // of an attempt, where the runner does not keep it
	timed   bool          // an attempt has a limit of its own
	bare    bool          // nothing stands before an attempt
	managed bool          // the first attempt may be another request than the caller's
	single  bool          // the policy makes one attempt, so that nothing is kept for another
	layers  []string      // the header of a request on its first layer; it is never changed
	settings
}

// runnerSet makes the attempts of a request.
type runnerSet struct {
	runner *retry.Runner
	hedger *retry.Hedger // nil without hedging
}

// New returns a transport that sends requests through next, as the policy says.
// A nil next is [http.DefaultTransport]. A policy that is not valid, or that
// has a key which the transport can't honour, is an error: reset-after belongs
// to sessions.
func New(policy retry.Policy, next http.RoundTripper, opts ...Option) (*Transport, error) {
	s, err := apply(opts)
	if next == nil {
		next = http.DefaultTransport
	}
	t := &Transport{next: next, policy: policy, settings: s}
	if err = errors.Join(err, t.build()); err != nil {
		return nil, refusal("New", err)
	}
	t.prepare()
	return t, nil
}

// Must is [New] for package variables and tests: it panics with the error that New
// would return. It accepts a policy or the text form of one, as [retry.Parse] reads it.
func Must[P retry.Policy | string](policy P, next http.RoundTripper, opts ...Option) *Transport {
	p, err := policyOf(policy)
	if err != nil {
		panic(refusal("Must", err))
	}
	t, err := New(p, next, opts...)
	if err != nil {
		panic(err)
	}
	return t
}

// policyOf returns a policy that is given as such or as text.
func policyOf(policy any) (retry.Policy, error) {
	if text, ok := policy.(string); ok {
		return retry.Parse(text)
	}
	return policy.(retry.Policy), nil
}

// prepare sets what follows from the policy, the settings and the runners.
func (t *Transport) prepare() {
	p, s := &t.policy, &t.settings
	t.single, t.layers = p.Retries() == 0, []string{s.layer}
	t.timed = p.AttemptTimeout > 0 || p.TotalTimeout > 0 || p.Hedge != (retry.Hedge{}) || s.streams.Idle > 0 || s.streams.Sized > 0
	t.managed = t.timed || s.router != nil || s.layer != "" || s.keys || len(s.deadlines) > 0
	t.bare = !t.managed && p.Budget == (limit.BudgetSpec{}) && len(s.retry) == 0
	t.half = t.whole
	if n := p.Attempts; n > 1 {
		t.half = t.whole.withAttempts((n + 1) / 2)
	}
}

// build makes the runners.
func (t *Transport) build() error {
	p, opts := t.policy, t.retry
	refused := p.Refuse("an HTTP transport", "reset-after")
	p.ResetAfter = 0 // said once
	if t.router != nil {
		t.limit, p.AttemptTimeout = p.AttemptTimeout, 0
		opts = append(slices.Clip(opts), retry.WithReview(t.review))
	}
	return errors.Join(refused, t.whole.make(p, opts))
}

// WithAttempts returns a transport that makes so many attempts and shares everything
// else with this one, as [retry.Runner.WithAttempts] does. Less than 1 makes one attempt.
func (t *Transport) WithAttempts(n int) *Transport {
	own := *t
	own.policy.Attempts = max(n, 1)
	own.whole = t.whole.withAttempts(n)
	own.prepare()
	return &own
}

// WithHedge returns a transport that hedges and shares everything else with this one.
// What it learns of the latency of requests is its own. A hedge that is zero or not
// valid is an error; nothing else is validated anew.
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

// make makes the runners.
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

// RoundTrip implements [http.RoundTripper]. When it gives up on a response it
// returns that response, and [GaveUp] says why; when it gives up on an error,
// the error is a [*retry.Error], which is a [net.Error]. If the caller cancels the
// request's context, without a cause of its own, the error is [context.Canceled].
// A transport whose policy is nothing but attempts=1 returns the error of the transport
// below as it is.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || !t.bare || req.Response != nil || !t.single && oneWay(req) || req.Context().Err() != nil {
		return t.roundTrip(req)
	}
	// Nothing stands before a first attempt: the request goes out as it came, and
	// if that does it, this is all there is.
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp != nil && resp.StatusCode < http.StatusBadRequest && t.streams.Hold == 0 {
		return resp, nil
	}
	return t.after(req, resp, err)
}

// after goes on after a first attempt that went out as it came.
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

// runners returns the runners for the request.
func (t *Transport) runners(req *http.Request) *runnerSet {
	if inboundRetries(req.Context()) > 0 {
		return &t.half
	}
	return &t.whole
}

// roundTrip makes a request of which more is to be done than to send it, or may
// be.
func (t *Transport) roundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.whole.runner == nil {
		closeBody(req)
		return nil, errors.New("retryhttp: the Transport was not made by New")
	}
	r := t.runners(req)
	if t.managed || req.Response != nil || !t.single && oneWay(req) {
		return t.exchange(r, req)
	}
	// While x is nil the request goes out as it came, which allocates nothing.
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
		closeBody(req) // no attempt was made that would close it
		return nil, t.callersError(req, err)
	}
	return resp, nil
}

// callersError returns the error that the caller of a request without an answer gets.
//
// If the caller has canceled the request, it is [context.Canceled] itself, as it is from
// net/http: callers compare it, and need no history of a request that they canceled. If
// the transport makes one attempt and has no other task, it is the error of that attempt.
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

// exchange makes a request of which more is to be done than to send it.
func (t *Transport) exchange(r *runnerSet, req *http.Request) (*http.Response, error) {
	before := spentBefore(req)
	if r.hedger != nil && before == (retry.State{}) && t.hedgeable(req) {
		return t.hedged(r, req)
	}
	x := newExchange(t, r, req, before)
	defer x.abandon()
	return x.finish(r.runner.Resume(req.Context(), before, x.attempt))
}

// plain reports whether the response of a first attempt needs no
// decision.
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

// holds reports whether the answer is a stream that is held. One that is encoded
// says nothing to us.
func (t *Transport) holds(resp *http.Response) bool {
	if t.streams.Hold == 0 || resp.StatusCode/100 != 2 || resp.Body == nil || resp.Body == http.NoBody || !IsEventStream(resp.Header) {
		return false
	}
	code := resp.Header.Get("Content-Encoding")
	return code == "" || code == "identity"
}

// IsEventStream reports whether an answer with the headers is an event stream.
func IsEventStream(h http.Header) bool {
	const events = "text/event-stream"
	kind := httpheader.First(h, "Content-Type")
	return len(kind) >= len(events) && strings.EqualFold(kind[:len(events)], events) &&
		(len(kind) == len(events) || strings.ContainsRune("; \t", rune(kind[len(events)])))
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
