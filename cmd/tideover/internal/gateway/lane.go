package gateway

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// makeTransports makes what sends requests, and shows that the policy can be kept.
// It needs to know who takes over.
func (p *provider) makeTransports() (err error) {
	policy := p.spec.Policy
	hedge := policy.Hedge
	policy.Hedge = retry.Hedge{}
	if p.plain, err = p.transport(policy); err != nil {
		return err
	}
	p.single = p.plain.WithAttempts(p.targets())
	if hedge != (retry.Hedge{}) {
		_, err = p.plain.WithHedge(hedge)
	}
	return err
}

// targets returns how many keys there are for its requests, at all providers.
func (p *provider) targets() (n int) {
	for _, o := range p.order {
		n += len(o.keys.keys)
	}
	return n
}

// transport returns one that keeps the policy.
func (p *provider) transport(policy retry.Policy) (*retryhttp.Transport, error) {
	// A retry at the same provider costs what its budget says, and one elsewhere
	// nothing: the request keeps the account.
	policy.Budget = limit.BudgetSpec{}
	known := presets[p.spec.Preset]
	policy.AttemptTimeout = cmp.Or(policy.AttemptTimeout, known.attemptTimeout())
	opts := []retryhttp.Option{
		retryhttp.WithRouter(router{}),
		retryhttp.WithRetry(retry.WithName(p.title()), retry.WithTroubleObserver(p.observe)),
		retryhttp.WithStreams(p.streams(policy.AttemptTimeout)),
		retryhttp.WithAttemptHeaders("gateway"),
		retryhttp.WithDeadlineHeaders(known.deadline),
		retryhttp.WithIdempotent(p.repeatable),
		retryhttp.WithDecoder("br", func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil }),
	}
	if p.spec.Posts != PostsNever {
		opts = append(opts, retryhttp.WithAnswered())
	}
	if known.conflict {
		opts = append(opts, retryhttp.WithConflict())
	}
	if p.spec.Keyed {
		opts = append(opts, retryhttp.WithIdempotencyKeys())
	}
	return retryhttp.New(policy, p.g.upstreams, opts...)
}

// streams returns how answers are read. An answer whose length is known is no stream, and
// is silent no longer than an attempt may take.
func (p *provider) streams(attempt time.Duration) retryhttp.Streams {
	s := retryhttp.Streams{Hold: max(p.spec.Hold, 0), Idle: max(p.spec.Idle, 0), Sized: attempt}
	if s.Idle > 0 {
		s.Sized = min(s.Sized, s.Idle)
	}
	return s
}

// lane returns the transport for a request. Hedging wants to know how long a route
// takes, so that each has a transport of its own. What costs money is not hedged.
func (p *provider) lane(method, route string) *retryhttp.Transport {
	costs := p.spec.Preset != Generic && method != http.MethodGet && method != http.MethodHead
	if p.spec.Policy.Hedge == (retry.Hedge{}) || costs {
		return p.plain
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.hedged) >= maxRoutes && p.hedged[route] == nil {
		route = otherRoute
	}
	if t := p.hedged[route]; t != nil {
		return t
	}
	t, err := p.plain.WithHedge(p.spec.Policy.Hedge)
	if err != nil {
		return p.plain // makeTransports has checked it
	}
	if p.hedged == nil {
		p.hedged = map[string]*retryhttp.Transport{}
	}
	p.hedged[route] = t
	return t
}

// repeatable reports whether the configuration says that a request may be sent
// twice.
func (p *provider) repeatable(req *http.Request) bool {
	if p.spec.Posts == PostsUnanswered && req.Method == http.MethodPost {
		return true
	}
	t := requestFrom(req.Context())
	if t == nil {
		return false
	}
	for _, r := range p.spec.Repeats {
		if r.Method == req.Method && (r.Path == t.path || strings.HasSuffix(r.Path, "/") && strings.HasPrefix(t.path, r.Path)) {
			return true
		}
	}
	return false
}

// callerMayRepeat reports whether the caller may send the request again after it was
// answered. An Idempotency-Key that the gateway adds is another one then, and protects
// nothing.
func (p *provider) callerMayRepeat(req *http.Request) bool {
	switch req.Method {
	case http.MethodPost, http.MethodPatch:
	default:
		return true
	}
	return len(req.Header["Idempotency-Key"]) > 0 || len(req.Header["X-Idempotency-Key"]) > 0 || p.repeatable(req)
}
