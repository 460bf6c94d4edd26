package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// RoundTripper returns a transport to the provider for use inside of this process, for
// callers that retry: the same gates, keys and limits, and the same fallbacks, but only
// the attempts that need no wait between them. After a key that is not accepted another
// key is tried, and after a provider that fails the next one that is ready, each at most
// once; waiting is up to the caller.
//
// Its errors are those of the last attempt, and state when to try again (see
// [retry.OutcomeOf]). So do its responses, if they are read as [retryhttp.Check] does:
// Retry-After is the soonest time of any key, and a rejection of keys is permanent only
// if no key is left.
//
// The URL of a request is the provider's: one below its base URL, or one without a
// host, whose path is then below the base URL. The name is looked up with each
// request, so that a reload holds for it too. A provider that a reload took away is
// still there for this, as it was: work that names it goes on to its end.
func (g *Gateway) RoundTripper(name string) http.RoundTripper { return &inProcessTransport{g, name} }

type inProcessTransport struct {
	g    *Gateway
	name string
}

// RoundTrip implements [http.RoundTripper].
func (i *inProcessTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := i.send(req)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // a second time, perhaps, which does no harm
	}
	return resp, err
}

func (i *inProcessTransport) send(req *http.Request) (*http.Response, error) {
	table := i.g.table.Load()
	p := table.known(i.name)
	if p == nil {
		return nil, retry.Permanent(fmt.Errorf("%w: %q; there are %s", ErrUnknownProvider, i.name, table.list()))
	}
	path, err := pathBelow(p.spec.BaseURL, req.URL)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("provider %q: %w", i.name, err))
	}
	if !i.g.traffic.enter() {
		return nil, errors.New("the gateway is ending")
	}
	class := p.spec.Priority
	if given := limit.PriorityFrom(req.Context()); given != limit.Normal {
		class = given
	}
	r := i.g.newRequest(req.Context(), p, req.Method, path, req.URL.RawQuery, class)
	r.callerRetries = true
	own := req.WithContext(r.context())
	own.URL = below(p.spec.BaseURL, path, req.URL.RawQuery)
	resp, err := r.bestResponse(p.single.RoundTrip(own))
	if err != nil {
		return nil, i.fail(r, err)
	}
	i.succeed(r, req, resp)
	return resp, nil
}

// fail ends a request without a response. It returns the failure of the last attempt,
// which says more than that there was no other.
func (i *inProcessTransport) fail(r *request, err error) error {
	if !errors.Is(r.caller.Err(), context.Canceled) {
		r.gaveUp = r.problemOf(err).reason
	}
	r.recordEnd()
	i.g.traffic.leave()
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
	r.mu.Lock()
	means := r.lastOutcome
	r.mu.Unlock()
	return &attemptsError{e.Last, cmp.Or(r.describe(nil), i.g.clean(e.Last)), means}
}

// attemptsError is the failure of the last attempt, with its outcome for a caller that
// retries.
type attemptsError struct {
	error
	text  string // with all that was tried
	means retry.Outcome
}

// Error says what was tried.
func (e *attemptsError) Error() string { return e.text }

// Unwrap returns the failure.
func (e *attemptsError) Unwrap() error { return e.error }

// RetryOutcome implements [retry.Classified].
func (e *attemptsError) RetryOutcome() retry.Outcome { return e.means }

// succeed ends the request with the body of its response.
func (i *inProcessTransport) succeed(r *request, req *http.Request, resp *http.Response) {
	r.mu.Lock()
	if gave, ok := retryhttp.GaveUp(resp); ok {
		r.gaveUp = gave.Reason.String()
	}
	r.answered = true
	r.setRetryAdvice(resp.Header)
	resp.Header[headerProvider] = r.last.p.named
	r.mu.Unlock()
	resp.Request = req
	end := &closingBody{ReadCloser: resp.Body, end: func() {
		r.whole = true
		r.recordEnd()
		i.g.traffic.leave()
	}}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = &closingConn{end, w}
	} else {
		resp.Body = end
	}
}

// setRetryAdvice makes a response say whether and when to try again, by what is known of
// all keys. It needs the lock.
func (r *request) setRetryAdvice(h http.Header) {
	kind := r.last.result.kind
	if kind != keyRejected && kind != keyThrottled || !r.last.p.keys.own {
		return
	}
	wait, ok := r.nextOpening()
	if kind == keyRejected {
		h.Set(shouldRetry, strconv.FormatBool(ok))
	}
	if !ok {
		return
	}
	// The most exact of the forms, which comes before all others.
	h.Del("Retry-After")
	h.Set("Retry-After-Ms", strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
	if wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(wait), 10))
	}
}

// nextOpening returns how long it is until a provider takes the request: 0 if one would
// now, false if none ever will. It needs the lock.
func (r *request) nextOpening() (wait time.Duration, ok bool) {
	for i := range r.targets {
		v := &r.targets[i]
		if !r.hasUsableKey(v, nil) {
			continue
		}
		w, _ := v.p.keys.left(r.scope())
		if found, next := v.p.gate.state(); found == gateClosed {
			w = max(w, next)
		}
		if !ok || w < wait {
			wait, ok = w, true
		}
	}
	return wait, ok
}

// pathBelow returns the path of a URL below the base.
func pathBelow(base, u *url.URL) (string, error) {
	path := u.EscapedPath()
	if u.Host != "" {
		if u.Host != base.Host || u.Scheme != base.Scheme {
			return "", fmt.Errorf("%s is not below %s", shown(u), shown(base))
		}
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(base.EscapedPath(), "/"))
		if !ok || rest != "" && rest[0] != '/' {
			return "", fmt.Errorf("%s is not below %s", shown(u), shown(base))
		}
		path = rest
	}
	switch {
	case hasDots(path):
		return "", errors.New("the path has a segment that leads upwards")
	case path != "" && path[0] != '/':
		path = "/" + path
	}
	return path, nil
}

// closingBody is a body that calls a function at its end.
type closingBody struct {
	io.ReadCloser
	end  func()
	over atomic.Bool
}

func (e *closingBody) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.once()
	}
	return n, err
}

func (e *closingBody) Close() error {
	defer e.once()
	return e.ReadCloser.Close()
}

func (e *closingBody) once() {
	if e.over.CompareAndSwap(false, true) {
		e.end()
	}
}

// closingConn is the connection after a 101. Its end of input is not its end.
type closingConn struct {
	*closingBody
	io.Writer
}

func (e *closingConn) Read(p []byte) (int, error) { return e.ReadCloser.Read(p) }
