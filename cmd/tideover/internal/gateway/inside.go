package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// RoundTripper returns a transport to the provider for use inside of this process:
// the same gates, keys and limits, and the same fallbacks, but one attempt, for
// those who retry by themselves. Its errors are what that attempt met, and know
// when to come again (see [retry.OutcomeOf]).
//
// The URL of a request is the provider's: one below its base URL, or one without a
// host, whose path is then below the base URL. The name is looked up with each
// request, so that a reload holds for it too.
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
	p := table.providers[i.name]
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
	t := i.g.newTrip(req.Context(), p, req.Method, path, req.URL.RawQuery, class)
	t.once = true
	own := req.WithContext(t.context())
	own.URL = below(p.spec.BaseURL, path, req.URL.RawQuery)
	resp, err := p.single.RoundTrip(own)
	if err != nil {
		i.over(t, err)
		return nil, unwrapped(err)
	}
	i.arrive(t, req, resp)
	return resp, nil
}

// over ends a trip without an answer.
func (i *inside) over(t *trip, err error) {
	if !errors.Is(t.caller.Err(), context.Canceled) {
		t.gaveUp = t.problemOf(err).reason
	}
	t.finish()
	i.g.traffic.leave()
}

// arrive lets the trip end with the body of its answer.
func (i *inside) arrive(t *trip, req *http.Request, resp *http.Response) {
	gave, ok := retryhttp.GaveUp(resp)
	if ok {
		t.gaveUp = reasonOf(gave).String()
	}
	t.answered = true
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

// unwrapped returns what the one attempt met, which knows more than that there was
// no other.
func unwrapped(err error) error {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*retry.Error](err); ok && e.Last != nil {
		return e.Last
	}
	return err
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
