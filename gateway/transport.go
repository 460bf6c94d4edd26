package gateway

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// makeTransports makes the transports of the provider, and shows that its policy can be
// honoured. It needs the fallbacks.
func (p *provider) makeTransports() (err error) {
	p.transports.spec = &p.spec
	policy := p.spec.Policy
	hedge := policy.Hedge
	policy.Hedge = retry.Hedge{}
	if p.transports.plain, err = p.newTransport(policy); err != nil {
		return err
	}
	keys := 0 // for its requests, at all providers
	for _, o := range p.order {
		keys += len(o.keys.keys)
	}
	p.transports.noWait = p.transports.plain.WithAttempts(keys)
	if hedge != (retry.Hedge{}) {
		_, err = p.transports.plain.WithHedge(hedge)
	}
	return err
}

// newTransport returns a transport that follows the policy.
func (p *provider) newTransport(policy retry.Policy) (*retryhttp.Transport, error) {
	// A retry at the same provider costs what its budget says, and one elsewhere
	// nothing: the targetPicker keeps count.
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
