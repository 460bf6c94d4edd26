package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/secret"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retryhttp"
)

// ServeHTTP implements [http.Handler].
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := g.admission.admit(r); p != nil {
		p.write(w)
		return
	}
	p, path, bad := g.find(r)
	if bad != nil {
		bad.write(w)
		return
	}
	class, bad := priorityOf(r, p)
	if bad != nil {
		bad.write(w)
		return
	}
	if !g.traffic.enter() {
		(&problem{
			status: http.StatusServiceUnavailable, code: codeEnding, provider: p.spec.Name,
			message: "the gateway is ending", after: time.Second,
		}).write(w)
		return
	}
	defer g.traffic.leave()
	ctx := r.Context()
	if n := retryhttp.PriorRetries(r.Header); n > 0 {
		ctx = retryhttp.WithPriorRetries(ctx, n)
	}
	var limited *until
	if left, ok := retryhttp.TimeLeft(r.Header); ok {
		var cancel func()
		limited, cancel = withDeadline(ctx, left)
		defer cancel()
		ctx = limited
	}
	t := g.newTrip(ctx, p, r.Method, path, r.URL.RawQuery, class)
	t.deadline = limited
	defer t.finish()
	if most := p.spec.MaxBody; most > 0 && r.ContentLength > most {
		t.answer(w, t.refuse(http.StatusRequestEntityTooLarge, codeTooLarge, 0, fmt.Sprintf("the body has %d bytes, and %d are allowed", r.ContentLength, most)))
		return
	}
	if ctx.Err() != nil { // of no time at all
		t.asked.tally.late.Add(1)
		bad := t.refuse(http.StatusGatewayTimeout, codeDeadline, 0, "the request came without any time left")
		bad.final = true
		t.answer(w, bad)
		return
	}
	r = r.WithContext(t.context())
	t.watchBody(w, r)
	w.Header()["Content-Type"] = nil // what a provider does not say is not guessed at
	g.proxy.ServeHTTP(w, r)
	t.whole = true
}

// find returns the provider that the request asks for, and the path below it.
func (g *Gateway) find(r *http.Request) (*provider, string, *problem) {
	escaped := r.URL.EscapedPath()
	name, path, ok := cutPath(escaped)
	table := g.table.Load()
	p := table.providers[name]
	switch {
	case !ok:
		return nil, "", &problem{status: http.StatusNotFound, code: codePath, message: "the path has no provider: " + prefix + "<provider>/…, with one of " + table.list()}
	case p == nil:
		return nil, "", &problem{status: http.StatusNotFound, code: codeProvider, message: "there is no such provider; there are " + table.list()}
	case hasDots(path):
		return nil, "", &problem{status: http.StatusBadRequest, code: codePath, provider: name, message: "the path has a segment that leads upwards"}
	}
	return p, path, nil
}

// priorityOf returns the request's priority.
func priorityOf(r *http.Request, p *provider) (limit.Priority, *problem) {
	v := r.Header.Get(headerPriority)
	if v == "" {
		return p.spec.Priority, nil
	}
	class, err := limit.ParsePriority(v)
	if err != nil {
		return 0, &problem{
			status: http.StatusBadRequest, code: codePriority, provider: p.spec.Name,
			message: headerPriority + ": want lowest, low, normal, high or highest",
		}
	}
	return class, nil
}

// newProxy returns what passes requests and answers on.
func (g *Gateway) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			t := tripOf(r.In.Context())
			r.Out.URL = below(t.asked.spec.BaseURL, t.path, t.query)
			r.Out.Host = ""
			for _, name := range betweenUs {
				delete(r.Out.Header, name)
			}
		},
		Transport: outbound{},
		// Event streams, and all that has no length, are flushed piece by piece in any
		// case. For the rest a flush of its own would be a second write for every answer.
		FlushInterval:  flushAfter,
		BufferPool:     &buffers{},
		ModifyResponse: func(resp *http.Response) error { return tripOf(resp.Request.Context()).passOn(resp) },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { tripOf(r.Context()).failed(w, err) },
		ErrorLog:       log.New(&quiet{g}, "", 0),
	}
}

// flushAfter is how long a part of an answer waits for more of it.
const flushAfter = 100 * time.Millisecond

// betweenUs are the headers that are for us, and that we set anew, in their
// canonical form. What a caller says of its time is out of date when we send it on.
var betweenUs = []string{
	headerPriority, headerToken,
	"Grpc-Timeout", "Connect-Timeout-Ms", "X-Envoy-Upstream-Rq-Timeout-Ms", "X-Stainless-Timeout", "X-Request-Timeout-Ms",
}

// outbound sends the request by the policy of the provider that was asked for.
type outbound struct{}

// RoundTrip implements [http.RoundTripper].
func (outbound) RoundTrip(req *http.Request) (*http.Response, error) {
	t := tripOf(req.Context())
	return t.best(t.asked.lane(req.Method, t.route).RoundTrip(req))
}

// passOn looks at the answer that the caller will get.
func (t *trip) passOn(resp *http.Response) error {
	gave, gaveUp := retryhttp.GaveUp(resp)
	if t.deadline != nil {
		t.deadline.callOff()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if gaveUp {
		t.gaveUp = reasonOf(gave).String()
	}
	if t.gaveUp != "" {
		resp.Header.Set(shouldRetry, "false")
	}
	resp.Header[headerProvider] = t.last.p.named
	t.answered = true
	if len(resp.Trailer) > 0 {
		// HTTP/1 has trailers only behind bodies of unknown length.
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	return nil
}

// failed answers a request that brought no answer.
func (t *trip) failed(w http.ResponseWriter, err error) {
	if errors.Is(t.caller.Err(), context.Canceled) {
		w.WriteHeader(statusGone) // which nobody sees
		return
	}
	t.answer(w, t.problemOf(err))
}

// statusGone is nginx's for a caller that went away.
const statusGone = 499

// answer sends one of our own answers.
func (t *trip) answer(w http.ResponseWriter, p *problem) {
	t.mu.Lock()
	if t.gaveUp = p.reason; t.gaveUp == "" {
		t.gaveUp = p.code
	}
	t.mu.Unlock()
	p.write(w)
}

// finish counts what became of the trip.
func (t *trip) finish() {
	t.end()
	t.mu.Lock()
	answered, why := t.answered, t.gaveUp
	t.mu.Unlock()
	n := t.asked.tally
	switch {
	case why != "":
		n.failed.Add(1)
		n.giveUps.add(why, 1)
		t.tellWithheld()
	case t.cut.Load():
		n.cutShort.Add(1)
		t.g.log.Warn("an answer broke off", "provider", t.asked.spec.Name, "route", t.route)
	case answered && t.whole: // even if the caller is gone by now
		n.succeeded.Add(1)
	default:
		n.canceled.Add(1)
	}
}

// watchBody limits the request's body, and notes if it can't be read: that is no
// fault of the provider's.
func (t *trip) watchBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	if most := t.asked.spec.MaxBody; most > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, most)
	}
	r.Body = &watchedBody{r.Body, t}
}

type watchedBody struct {
	io.ReadCloser
	t *trip
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.t.body.CompareAndSwap(nil, &err)
	}
	return n, err
}

// buffers are for copying.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// quiet takes what the proxy says by itself: callers that went away, answers that
// broke off. Both are counted elsewhere.
type quiet struct{ g *Gateway }

// Write implements [io.Writer].
func (q *quiet) Write(p []byte) (int, error) {
	q.g.log.Debug(secret.Unquoted(q.g.redact(string(bytes.TrimSpace(p)))))
	return len(p), nil
}
