package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// inProcessTransport is the transport of [Gateway.RoundTripper].
type inProcessTransport struct {
	g    *Gateway
	name string
}

// RoundTrip implements [http.RoundTripper].
func (i *inProcessTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := i.send(req)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // closing it twice does no harm
	}
	return resp, err
}

func (i *inProcessTransport) send(req *http.Request) (*http.Response, error) {
	table := i.g.table.Load()
	p := table.known(i.name)
	if p == nil {
		return nil, retry.Permanent(fmt.Errorf("%w: %q; configured: %s", ErrUnknownProvider, i.name, table.list()))
	}
	path, err := pathBelow(p.spec.BaseURL, req.URL)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("provider %q: %w", i.name, err))
	}
	if why := badMethod(req.Method); why != "" {
		return nil, retry.Permanent(fmt.Errorf("provider %q: %s", i.name, why))
	}
	if !i.g.traffic.enter() {
		return nil, errors.New("the gateway is shutting down")
	}
	class := cmp.Or(limit.PriorityFrom(req.Context()), p.spec.Priority)
	r := newRequest(i.g, p, req.Method, incoming{caller: req.Context(), path: path, query: req.URL.RawQuery, class: class, retries: true})
	own := req.WithContext(r.context())
	own.URL = below(p.spec.BaseURL, path, req.URL.RawQuery)
	resp, err := r.response.best(p.transports.noWait.RoundTrip(own))
	if err != nil {
		return nil, i.fail(r, err)
	}
	i.succeed(r, req, resp)
	return resp, nil
}

// fail ends a request without a response. It returns the failure of the last attempt,
// which tells the caller more than the error of the retry loop.
func (i *inProcessTransport) fail(r *request, err error) error {
	if !errors.Is(r.caller.Err(), context.Canceled) {
		r.response.giveUp(r.problemOf(err), 0)
	}
	r.response.finish()
	i.g.traffic.finish()
	if own, ok := errors.AsType[*problem](err); ok {
		own.outcome = own.later
		return own
	}
	e, ok := errors.AsType[*retry.Error](err)
	if !ok || e.Last == nil {
		return err
	}
	if r.caller.Err() != nil {
		return e.Last
	}
	return &attemptsError{e.Last, cmp.Or(r.picker.describe(nil), i.g.clean(e.Last)), r.picker.outcome()}
}

// attemptsError is the failure of the last attempt, with its outcome for a caller that
// retries.
type attemptsError struct {
	error
	text  string // describes the failures at all targets
	means retry.Outcome
}

// Error describes the failures at all targets.
func (e *attemptsError) Error() string { return e.text }

// Unwrap returns the failure of the last attempt.
func (e *attemptsError) Unwrap() error { return e.error }

// RetryOutcome implements [retry.Classified].
func (e *attemptsError) RetryOutcome() retry.Outcome { return e.means }

// succeed makes the request end when the body of its response has been read or closed.
func (i *inProcessTransport) succeed(r *request, req *http.Request, resp *http.Response) {
	r.response.answer(resp)
	r.response.setRetryAdvice(resp.Header)
	resp.Request = req
	r.watchResponse(resp)
	end := &closingBody{resp.Body, sync.OnceFunc(func() {
		r.response.complete()
		r.response.finish()
		i.g.traffic.finish()
	})}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = &closingConn{end, w}
	} else {
		resp.Body = end
	}
}

// pathBelow returns the path of a URL relative to the base URL. A URL without a host has
// that path already.
func pathBelow(base, u *url.URL) (string, error) {
	path := u.EscapedPath()
	if u.Host != "" {
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(base.EscapedPath(), "/"))
		if u.Host != base.Host || u.Scheme != base.Scheme || !ok || rest != "" && rest[0] != '/' {
			return "", fmt.Errorf("%s is not below %s", shown(u), shown(base))
		}
		path = rest
	}
	switch {
	case hasDots(path):
		return "", errors.New("the path has a . or .. segment")
	case path != "" && path[0] != '/':
		path = "/" + path
	}
	return path, nil
}

// closingBody is a body that calls a function when it ends or is closed.
type closingBody struct {
	io.ReadCloser
	end func() // may be called several times
}

func (e *closingBody) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.end()
	}
	return n, err
}

func (e *closingBody) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// closingConn is the connection after a 101. It is still writable after its input has
// ended.
type closingConn struct {
	*closingBody
	io.Writer
}

func (e *closingConn) Read(p []byte) (int, error) { return e.ReadCloser.Read(p) }
