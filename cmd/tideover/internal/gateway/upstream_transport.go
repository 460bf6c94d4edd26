package gateway

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
)

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
		if t := requestFrom(req.Context()); t != nil && t.usesH2C(req) {
			next = u.h2c
		}
	}
	resp, err := next.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	if err = discreet(err, req); shortage.Is(err) {
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
