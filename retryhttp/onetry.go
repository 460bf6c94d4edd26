package retryhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strings"
	"sync"
)

// OneTry returns a transport that sends a request at most once in a call of RoundTrip. t
// itself repeats a request that HTTP/2 has refused up to seven times, and waits up to 64 s
// between the tries, and no policy counts them. [New] calls OneTry for an
// [*http.Transport]. Call it to put another transport between the two, or to retry with a
// [retry.Runner].
//
// An idle connection may close at the moment when a request is sent. Like t, OneTry then
// sends the request again over another connection, if it is idempotent or the server has
// excluded it with a GOAWAY.
func OneTry(t *http.Transport) http.RoundTripper { return oneTry{t} }

type oneTry struct{ t *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (o oneTry) RoundTrip(req *http.Request) (*http.Response, error) {
	if !o.mayUseHTTP2(req) {
		return o.t.RoundTrip(req)
	}
	w := newWire(req.Context())
	resp, err := o.t.RoundTrip(req.WithContext(w))
	if err != nil {
		return nil, w.failure(err)
	}
	resp.Request = req
	return resp, nil
}

// mayUseHTTP2 reports whether the transport may send the request with HTTP/2. For other
// requests there is nothing to watch: HTTP/1 can't refuse a request.
func (o oneTry) mayUseHTTP2(req *http.Request) bool {
	if req.URL == nil {
		return false
	}
	p := o.t.Protocols
	return req.URL.Scheme == "https" || p != nil && p.UnencryptedHTTP2()
}

// CloseIdleConnections closes the idle connections of the transport.
func (o oneTry) CloseIdleConnections() { o.t.CloseIdleConnections() }

// wire is the context of a request. It watches the connections that a transport uses for the
// request, and ends when the transport is about to send a refused request again.
//
// net/http offers no way to turn off its repetitions, but it reports each connection
// before it sends the request, and then checks the context.
type wire struct {
	context.Context
	hooks httptrace.ClientTrace

	mu        sync.Mutex
	conn      net.Conn // connection of the last try; nil before the first
	reused    bool     // conn had requests before
	wrote     bool     // the last try was sent
	repeating bool     // the transport looks for a connection for another try
	refused   bool     // the server has refused the request
}

func newWire(parent context.Context) *wire {
	w := new(wire)
	w.hooks.GetConn, w.hooks.GotConn, w.hooks.WroteHeaders = w.getConn, w.gotConn, w.wroteHeaders
	w.Context = httptrace.WithClientTrace(parent, &w.hooks)
	return w
}

func (w *wire) getConn(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repeating = w.conn != nil
}

// gotConn begins a try. The transport makes a second one for one of these reasons:
//
//   - The first was not sent, because the connection had closed.
//   - The connection closed after the request was sent. The next try uses another one.
//   - The server refused the stream. The next try usually uses the same connection.
//
// A server that closes a new connection at its first request refuses the request, too.
func (w *wire) gotConn(i httptrace.GotConnInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrote && (!w.reused || same(w.conn, i.Conn)) {
		w.refused = true
		return
	}
	w.conn, w.reused, w.wrote, w.repeating = i.Conn, i.Reused, false, false
}

// same reports whether both are the same connection. A dialer may return a type that can't
// be compared.
func same(a, b net.Conn) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

func (w *wire) wroteHeaders() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrote = true
}

// failure returns the error of the request. err is that of the transport.
func (w *wire) failure(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.refused:
		return &unprocessedError{errRefused}
	case w.conn != nil && (!w.wrote || w.repeating), strings.HasPrefix(err.Error(), goAway):
		return &unprocessedError{err}
	}
	return err
}

// goAway is the beginning of the error of net/http for a GOAWAY with an error code that
// excludes the first request of a connection. The error has no type.
const goAway = "http2: Transport received GOAWAY from server ErrCode:"

func (w *wire) isRefused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// Done implements [context.Context]. No goroutine waits for the channel of the parent at the
// moment when the request is refused, so the method may return another channel from then on.
func (w *wire) Done() <-chan struct{} {
	if w.isRefused() {
		return closed
	}
	return w.Context.Done()
}

// Err implements [context.Context].
func (w *wire) Err() error {
	if w.isRefused() {
		return context.Canceled
	}
	return w.Context.Err()
}

// closed is a closed channel.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

var errRefused = errors.New("the server refused the request without processing it (HTTP/2)")

// unprocessedError is the error of a request that the server has not processed: it was
// refused, or no part of it was sent.
type unprocessedError struct{ error }

// Unwrap returns the error of the transport.
func (e *unprocessedError) Unwrap() error { return e.error }

// Timeout implements [net.Error], because [url.Error] looks for it in its error only.
func (e *unprocessedError) Timeout() bool {
	t, ok := errors.AsType[net.Error](e.error)
	return ok && t.Timeout()
}

// Temporary implements [net.Error].
func (e *unprocessedError) Temporary() bool { return true }
