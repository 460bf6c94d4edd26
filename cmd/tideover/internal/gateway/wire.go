package gateway

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// shouldRetry is the header with which a server says whether its answer is worth
// a retry, whatever its status.
const shouldRetry = "X-Should-Retry"

// wire is what attempts are sent through. An answer that refuses one of our keys
// is none to the caller while there is another key, or another provider: it then
// says of itself that it is worth a retry.
type wire struct {
	base http.RoundTripper
	h2c  *http.Transport // of providers with Spec.H2C
	some *atomic.Bool    // there are such providers
}

// RoundTrip implements [http.RoundTripper].
func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	next := w.base
	if w.some.Load() {
		if t := tripOf(req.Context()); t != nil && t.legOf(req).h2c() {
			next = w.h2c
		}
	}
	resp, err := next.RoundTrip(req)
	if err == nil && resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	var l *leg
	t := tripOf(req.Context())
	if t != nil {
		l = t.legOf(req)
	}
	if err != nil {
		return nil, discreet(err, req)
	}
	if l != nil && l.key.refusable(resp.StatusCode) && t.other(l) {
		resp.Header.Set(shouldRetry, "true")
	}
	return resp, nil
}

// other reports whether there is another target for the leg's request: now, or, for
// one who waits here, later.
func (t *trip) other(l *leg) bool {
	if l.p.ring.another(&l.call, t.scope()) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.elsewhere(l.visit) {
		return true
	}
	return !t.once && (t.hope(l.visit, l.key) || l.p != t.asked && t.hope(&t.visits[0], nil))
}

// CloseIdleConnections lets a transport above close them.
func (w wire) CloseIdleConnections() {
	if c, ok := w.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	w.h2c.CloseIdleConnections()
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
