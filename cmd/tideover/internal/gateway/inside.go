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

// RoundTripper returns a transport to the provider for use inside of this process,
// for those who retry by themselves: the same gates, keys and limits, and the same
// fallbacks, but only the attempts that need no wait between them. A key that is not
// let in makes way for another one, and a provider that fails for the next one that
// is ready, each at most once; waiting is up to the caller.
//
// Its errors are what the last attempt met, and know when to come again (see
// [retry.OutcomeOf]). So do its answers, to whoever reads them as
// [retryhttp.Check] does: Retry-After is the soonest time of any key, and what keys
// were refused for is permanent only if no key is left.
//
// The URL of a request is the provider's: one below its base URL, or one without a
// host, whose path is then below the base URL. The name is looked up with each
// request, so that a reload holds for it too. A provider that a reload took away is
// still there for this, as it was: work that names it goes on to its end.
func (g *Gateway) RoundTripper(name string) http.RoundTripper { return &inside{g, name} }

type inside struct {
	g    *Gateway
	name string
}

// RoundTrip implements [http.RoundTripper].
func (i *inside) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := i.send(req)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // a second time, perhaps, which does no harm
	}
	return resp, err
}

func (i *inside) send(req *http.Request) (*http.Response, error) {
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
	t := i.g.newRequest(req.Context(), p, req.Method, path, req.URL.RawQuery, class)
	t.callerRetries = true
	own := req.WithContext(t.context())
	own.URL = below(p.spec.BaseURL, path, req.URL.RawQuery)
	resp, err := t.best(p.single.RoundTrip(own))
	if err != nil {
		return nil, i.over(t, err)
	}
	i.arrive(t, req, resp)
	return resp, nil
}

// over ends a request without a response. It returns the failure of the last attempt,
// which says more than that there was no other.
func (i *inside) over(t *request, err error) error {
	if !errors.Is(t.caller.Err(), context.Canceled) {
		t.gaveUp = t.problemOf(err).reason
	}
	t.finish()
	i.g.traffic.leave()
	if own, ok := errors.AsType[*problem](err); ok {
		own.outcome = own.later
		return own
	}
	e, ok := errors.AsType[*retry.Error](err)
	if !ok || e.Last == nil {
		return err
	}
	if t.caller.Err() != nil {
		return e.Last
	}
	t.mu.Lock()
	means := t.lastOutcome
	t.mu.Unlock()
	return &unanswered{e.Last, cmp.Or(t.story(nil), i.g.clean(e.Last)), means}
}

// unanswered is how the last attempt failed, with what that means to one who
// retries by himself.
type unanswered struct {
	error
	text  string // with all that was tried
	means retry.Outcome
}

// Error says what was tried.
func (e *unanswered) Error() string { return e.text }

// Unwrap returns the failure.
func (e *unanswered) Unwrap() error { return e.error }

// RetryOutcome implements [retry.Classified].
func (e *unanswered) RetryOutcome() retry.Outcome { return e.means }

// arrive ends the request with the body of its response.
func (i *inside) arrive(t *request, req *http.Request, resp *http.Response) {
	t.mu.Lock()
	if gave, ok := retryhttp.GaveUp(resp); ok {
		t.gaveUp = gave.Reason.String()
	}
	t.answered = true
	t.advise(resp.Header)
	resp.Header[headerProvider] = t.last.p.named
	t.mu.Unlock()
	resp.Request = req
	end := &ending{ReadCloser: resp.Body, end: func() {
		t.whole = true
		t.finish()
		i.g.traffic.leave()
	}}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = &endingConn{end, w}
	} else {
		resp.Body = end
	}
}

// advise makes an answer say when to come again, and whether, by what is known of
// all keys. It needs the lock.
func (t *request) advise(h http.Header) {
	kind := t.last.result.kind
	if kind != keyRejected && kind != keyThrottled || !t.last.p.keys.own {
		return
	}
	wait, ok := t.later()
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

// later returns how long it will be until a provider takes the request that may: 0
// if one would now, false if none ever will. It needs the lock.
func (t *request) later() (wait time.Duration, ok bool) {
	for i := range t.targets {
		v := &t.targets[i]
		if !t.hasUsableKey(v, nil) {
			continue
		}
		w, _ := v.p.keys.left(t.scope())
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

// ending is a body whose end somebody wants to know of.
type ending struct {
	io.ReadCloser
	end  func()
	over atomic.Bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.once()
	}
	return n, err
}

func (e *ending) Close() error {
	defer e.once()
	return e.ReadCloser.Close()
}

func (e *ending) once() {
	if e.over.CompareAndSwap(false, true) {
		e.end()
	}
}

// endingConn is the connection after a 101. Its end of input is not its end.
type endingConn struct {
	*ending
	io.Writer
}

func (e *endingConn) Read(p []byte) (int, error) { return e.ReadCloser.Read(p) }
