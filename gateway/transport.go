package gateway

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// makeTransports makes the transports of the provider, and shows that its policy can be
// honoured. It needs the fallbacks.
func (p *provider) makeTransports() (err error) {
	policy := p.spec.Policy
	hedge := policy.Hedge
	policy.Hedge = retry.Hedge{}
	if p.plain, err = p.newTransport(policy); err != nil {
		return err
	}
	p.single = p.plain.WithAttempts(p.targets())
	if hedge != (retry.Hedge{}) {
		_, err = p.plain.WithHedge(hedge)
	}
	return err
}

// targets returns the number of keys for its requests, at all providers.
func (p *provider) targets() (n int) {
	for _, o := range p.order {
		n += len(o.keys.keys)
	}
	return n
}

// newTransport returns a transport that follows the policy.
func (p *provider) newTransport(policy retry.Policy) (*retryhttp.Transport, error) {
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
	}
	for encoding, decode := range p.gateway.options.Decoders {
		opts = append(opts, retryhttp.WithDecoder(encoding, decode))
	}
	if p.spec.RetryPosts != PostsNever {
		opts = append(opts, retryhttp.WithAnswered())
	}
	if known.conflict {
		opts = append(opts, retryhttp.WithConflict())
	}
	if p.spec.IdempotencyKeys {
		opts = append(opts, retryhttp.WithIdempotencyKeys())
	}
	return retryhttp.New(policy, p.gateway.upstreams, opts...)
}

// streams returns how answers are read. An answer whose length is known is no stream, and
// is silent no longer than an attempt may take.
func (p *provider) streams(attempt time.Duration) retryhttp.Streams {
	s := retryhttp.Streams{Hold: max(p.spec.StreamHold, 0), Idle: max(p.spec.StreamIdle, 0), Sized: attempt}
	if s.Idle > 0 {
		s.Sized = min(s.Sized, s.Idle)
	}
	return s
}

// transportFor returns the transport for a request. A hedge depends on the latency of
// the route, so that each route has a transport of its own. Requests that cost money are
// not hedged.
func (p *provider) transportFor(method, route string) *retryhttp.Transport {
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
	if p.spec.RetryPosts == PostsUnanswered && req.Method == http.MethodPost {
		return true
	}
	r := requestFrom(req.Context())
	if r == nil {
		return false
	}
	for _, allowed := range p.spec.Repeatable {
		if allowed.Method == req.Method && (allowed.Path == r.path || strings.HasSuffix(allowed.Path, "/") && strings.HasPrefix(r.path, allowed.Path)) {
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

// upstreamTransport sends attempts to providers, by the protocol that the provider
// speaks.
type upstreamTransport struct {
	base   http.RoundTripper
	h2c    *http.Transport // of providers with Spec.H2C
	hasH2C *atomic.Bool    // there are such providers
}

// RoundTrip implements [http.RoundTripper].
func (u upstreamTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	next := u.base
	if u.hasH2C.Load() {
		if r := requestFrom(req.Context()); r != nil && r.usesH2C(req) {
			next = u.h2c
		}
	}
	resp, err := next.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	if err = redactError(err, req); shortage.Is(err) {
		err = &shortageError{err}
	}
	return nil, err
}

// shortageError is a failure of this machine, of which the provider knows nothing. It is
// not repeated: the caller is asked to try again when this machine has room.
type shortageError struct{ error }

// Unwrap returns the failure.
func (e *shortageError) Unwrap() error { return e.error }

// RetryOutcome implements [retry.Classified].
func (*shortageError) RetryOutcome() retry.Outcome { return retry.Outcome{Final: true} }

// CloseIdleConnections lets a transport above close them.
func (u upstreamTransport) CloseIdleConnections() {
	if c, ok := u.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	u.h2c.CloseIdleConnections()
}

// newTransport returns the transport to all providers.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		},
		Protocols:             protocols,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // what the caller did not ask for is not undone
	}
}

// newH2CTransport returns the transport to providers that speak HTTP/2 without TLS.
func newH2CTransport() *http.Transport {
	t := newTransport()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}
