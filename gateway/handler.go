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

	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retryhttp"
)

// ServeHTTP implements [http.Handler].
func (g *Gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if p := g.authorizer.authorize(req); p != nil {
		p.write(w)
		return
	}
	p, path, bad := g.find(req)
	if bad != nil {
		bad.write(w)
		return
	}
	class, bad := priorityOf(req, p)
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
	ctx := req.Context()
	if n := retryhttp.PriorRetries(req.Header); n > 0 {
		ctx = retryhttp.WithPriorRetries(ctx, n)
	}
	limited, cancel := withCallersDeadline(ctx, req.Header)
	if limited != nil {
		defer cancel()
		ctx = limited
	}
	r := g.newRequest(ctx, p, req.Method, path, req.URL.RawQuery, class)
	r.deadline = limited
	r.host, r.secure = req.Host, req.TLS != nil
	defer r.recordEnd()
	if most := p.spec.MaxBody; most > 0 && req.ContentLength > most {
		r.writeProblem(w, r.newProblem(http.StatusRequestEntityTooLarge, codeTooLarge, 0, fmt.Sprintf("the body has %d bytes, and %d are allowed", req.ContentLength, most)))
		return
	}
	if ctx.Err() != nil { // of no time at all
		r.asked.stats.late.Add(1)
		bad := r.newProblem(http.StatusGatewayTimeout, codeDeadline, 0, "the request came without any time left")
		bad.final = true
		r.writeProblem(w, bad)
		return
	}
	req = req.WithContext(r.context())
	r.watchBody(w, req)
	w.Header()["Content-Type"] = nil // what a provider does not say is not guessed at
	defer r.abort(w)
	g.proxy.ServeHTTP(w, req)
	r.whole = true
}

// abort is deferred, and ends an answer that breaks off. It sends what is buffered, at
// least the head. A client that sees nothing of an answer takes it for a connection that
// failed, and sends the request again: a POST would be done, and billed, twice.
func (r *request) abort(w http.ResponseWriter) {
	switch reason := recover(); reason {
	case nil:
	case http.ErrAbortHandler:
		_ = http.NewResponseController(w).Flush() // the client may be gone
		fallthrough
	default:
		panic(reason)
	}
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
	v := httpheader.First(r.Header, headerPriority)
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
		Rewrite: func(pr *httputil.ProxyRequest) {
			r := requestFrom(pr.In.Context())
			pr.Out.URL = below(r.asked.spec.BaseURL, r.path, r.query)
			pr.Out.Host = ""
			pr.Out.Trailer = pr.In.Trailer // the same map, into which the server writes them behind the body
			for _, name := range betweenUs {
				delete(pr.Out.Header, name)
			}
		},
		Transport: providerTransport{},
		// Event streams, and all that has no length, are flushed piece by piece in any
		// case. For the rest a flush of its own would be a second write for every answer.
		FlushInterval:  flushAfter,
		BufferPool:     &buffers{},
		ModifyResponse: func(resp *http.Response) error { return requestFrom(resp.Request.Context()).modifyResponse(resp) },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { requestFrom(r.Context()).writeError(w, err) },
		ErrorLog:       log.New(&quiet{g}, "", 0),
	}
}

// flushAfter is how long a part of an answer waits for more of it.
const flushAfter = 100 * time.Millisecond

// betweenUs are the headers that are for us, in their canonical form.
var betweenUs = []string{headerPriority, headerToken}

// providerTransport sends the request by the policy of the provider that was asked for.
type providerTransport struct{}

// RoundTrip implements [http.RoundTripper].
func (providerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	r := requestFrom(req.Context())
	return r.bestResponse(r.asked.transportFor(req.Method, r.route).RoundTrip(req))
}

// doNotRetry is the value of shouldRetry on answers after which the caller should not
// repeat the request. It is never changed.
var doNotRetry = []string{"false"}

// modifyResponse changes the headers of the response that the caller will get. After the
// success of a request that may not be sent twice, they tell the caller not to repeat
// it: the body may be cut after the head was sent, and some SDKs repeat a request whose
// response they can't read.
func (r *request) modifyResponse(resp *http.Response) error {
	gave, gaveUp := retryhttp.GaveUp(resp)
	if retryhttp.IsEventStream(resp.Header) {
		r.deadline.streamBegins()
		if resp.StatusCode == http.StatusOK && len(resp.Header["Content-Encoding"]) == 0 {
			resp.Body = &eventBody{ReadCloser: resp.Body, provider: r.asked.spec.Name, line: true, blank: true}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if gaveUp {
		r.gaveUp = gave.Reason.String()
	}
	if r.gaveUp != "" || resp.StatusCode < http.StatusBadRequest && !r.asked.callerMayRepeat(resp.Request) {
		resp.Header[shouldRetry] = doNotRetry
	}
	resp.Header[headerProvider] = r.last.p.named
	r.rewriteURLs(resp.Header, r.last.p)
	r.answered = true
	if len(resp.Trailer) > 0 {
		// HTTP/1 has trailers only behind bodies of unknown length.
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	return nil
}

// writeError answers a request that got no response.
func (r *request) writeError(w http.ResponseWriter, err error) {
	if r.callerGone() && errors.Is(r.caller.Err(), context.Canceled) {
		w.WriteHeader(statusGone) // for the log alone: the caller has disconnected
		return
	}
	p := r.problemOf(err)
	if p.status == http.StatusGatewayTimeout {
		r.upload.stop()
	}
	r.writeProblem(w, p)
}

// statusGone is nginx's for a caller that went away.
const statusGone = 499

// writeProblem sends a response of the gateway itself.
func (r *request) writeProblem(w http.ResponseWriter, p *problem) {
	r.mu.Lock()
	if r.gaveUp = p.reason; r.gaveUp == "" {
		r.gaveUp = p.code
	}
	r.mu.Unlock()
	p.write(w)
}

// recordEnd counts how the request ended.
func (r *request) recordEnd() {
	r.closeAccounts()
	r.mu.Lock()
	answered, why := r.answered, r.gaveUp
	r.mu.Unlock()
	n := r.asked.stats
	switch {
	case why != "":
		n.failed.Add(1)
		n.giveUps.add(why, 1)
		r.tellWithheld()
	case r.cut.Load():
		n.cutShort.Add(1)
		r.g.log.Warn("an answer broke off", "provider", r.asked.spec.Name, "route", r.route)
	case answered && r.whole: // even if the caller is gone by now
		n.succeeded.Add(1)
	default:
		n.canceled.Add(1)
	}
}

// watchBody limits the request's body, and records if it can't be read: that is no fault
// of the provider.
func (r *request) watchBody(w http.ResponseWriter, req *http.Request) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	if most := r.asked.spec.MaxBody; most > 0 {
		req.Body = http.MaxBytesReader(w, req.Body, most)
	}
	r.watched = watchedBody{req.Body, r}
	req.Body = &r.watched
	r.upload.writer = w
	if r.deadline != nil {
		r.deadline.upload.Store(&r.upload)
	}
}

// watchedBody is the body of a request, whose reads are timed and whose failure is kept.
type watchedBody struct {
	io.ReadCloser
	t *request
}

func (b *watchedBody) Read(p []byte) (int, error) {
	if b.t.upload.stopped.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	b.t.upload.begin()
	n, err := b.ReadCloser.Read(p)
	if b.t.upload.end(); err != nil {
		b.t.upload.ended.Store(true)
	}
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) && !b.t.upload.stopped.Load() {
		failure := err // so that err itself is not allocated for each read
		b.t.body.CompareAndSwap(nil, &failure)
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

// quiet logs the messages of the proxy itself: callers that disconnected, responses that
// broke off. Both are counted elsewhere.
type quiet struct{ g *Gateway }

// Write implements [io.Writer].
func (q *quiet) Write(p []byte) (int, error) {
	q.g.log.Debug(secret.Unquoted(q.g.redact(string(bytes.TrimSpace(p)))))
	return len(p), nil
}
