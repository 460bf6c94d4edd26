package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retryhttp"
)

// This is the path of a request that succeeds at its first attempt, with all files that it
// passes. The state of the request, a *request, is in its context. Other calls on the way,
// such as counters, clocks, breakers and the formatting of headers, return at once. A response that is an event stream
// is also held until its first content (retryhttp: classify.go, stream.go, peek.go).
//
//	Gateway.ServeHTTP            checks the caller and finds the provider
//	newRequest                   request.go: makes the state of the request
//	httputil.ReverseProxy        copies the request and the response
//	transports.choose            upstream.go: chooses the retryhttp.Transport
//	retryhttp.Transport          retryhttp/transport.go: makes an exchange
//	  retry.Runner.Resume        retry/call.go: makes the first attempt within the total timeout
//	  exchange.attempt           retryhttp/exchange.go: makes the attempt's request, with its
//	                             body (replay.go) and its time limits (timeout.go)
//	    router.Route             attempt.go: an attempt begins
//	      targetPicker.pick      pick.go: picks the provider, passes its gate and limits
//	                             (upstream.go), and picks the key
//	                             (keypool.go, health/pool.go)
//	    upstreamTransport        upstream.go: sends the request
//	    attempt.Done             attempt.go: reports the result to key, breaker and gate
//	    attempt.Closed           attempt.go: returns slot and key when the body has ended
//	response.best, modify        request.go: choose and change the caller's response
//	response.finish              request.go: counts the result of the request
//
// After a failure, retry/loop.go calls router.Next (by way of retryhttp/router.go):
// verdict.go decides what the failure means and what follows, and wait.go waits if no
// provider can take the request.

// ServeHTTP implements [http.Handler].
func (g *Gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p, path, class, bad := g.admit(req)
	if bad != nil {
		g.reject(w, req, bad)
		return
	}
	defer g.traffic.finish()
	ctx := req.Context()
	if n := retryhttp.PriorRetries(req.Header); n > 0 {
		ctx = retryhttp.WithPriorRetries(ctx, n)
	}
	var limited *callerDeadline
	if left, ok := retryhttp.TimeLeft(req.Header); ok {
		limited = newCallerDeadline(ctx, left, req.Header)
		defer limited.cancel()
		ctx = limited
	}
	r := newRequest(g, p, req.Method, incoming{
		caller: ctx, path: path, query: req.URL.RawQuery, class: class,
		deadline: limited, host: req.Host, secure: req.TLS != nil,
	})
	r.writer = w
	defer r.response.finish()
	if most := p.spec.MaxBody; most > 0 && req.ContentLength > most {
		r.response.writeProblem(w, r.newProblem(http.StatusRequestEntityTooLarge, codeTooLarge, 0, fmt.Sprintf("the body has %d bytes, at most %d are allowed", req.ContentLength, most)))
		return
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it had passed before the request came in
		r.asked.stats.late.Add(1)
		bad := r.newProblem(http.StatusGatewayTimeout, codeDeadline, 0, "the deadline of the request had passed when it came in")
		bad.final = true
		r.response.writeProblem(w, bad)
		return
	}
	req = req.WithContext(r.context())
	r.watchBody(w, req)
	w.Header()["Content-Type"] = nil // do not guess a content type that the provider does not send
	defer abort(w)
	g.proxy.ServeHTTP(w, req)
	r.response.complete()
}

// admit checks the caller, finds the provider and counts the request as in progress. bad
// is the reason for a rejection, or nil.
func (g *Gateway) admit(req *http.Request) (p *provider, path string, class limit.Priority, bad *problem) {
	if bad = g.authorizer.authorize(req); bad == nil {
		p, path, bad = g.find(req)
	} else if g.options.Refused != nil {
		g.options.Refused(req, bad.status, bad.code)
	}
	if bad == nil {
		class, bad = priorityOf(req, p)
	}
	if bad == nil && !g.traffic.enter() {
		bad = &problem{
			status: http.StatusServiceUnavailable, code: codeEnding, provider: p.spec.Name,
			message: "the gateway is shutting down", after: time.Second,
		}
	}
	return p, path, class, bad
}

// abort handles the panic of an answer that breaks off; it must be deferred. It flushes
// at least the headers before the panic continues. A client that sees nothing of an answer
// assumes a failed connection and repeats the request: a POST would be processed, and
// billed, twice.
func abort(w http.ResponseWriter) {
	switch reason := recover(); reason {
	case nil:
	case http.ErrAbortHandler:
		_ = http.NewResponseController(w).Flush() // fails if the client has disconnected
		fallthrough
	default:
		panic(reason)
	}
}

// find returns the provider that the request names, and the rest of the path.
func (g *Gateway) find(r *http.Request) (*provider, string, *problem) {
	escaped := r.URL.EscapedPath()
	name, path, ok := cutPath(escaped)
	table := g.table.Load()
	p := table.providers[name]
	switch {
	case !ok:
		return nil, "", &problem{status: http.StatusNotFound, code: codePath, message: "the path has no provider: want " + prefix + "<provider>/…, with one of " + table.list()}
	case p == nil:
		return nil, "", &problem{status: http.StatusNotFound, code: codeProvider, message: "no such provider; configured: " + table.list()}
	case hasDots(path):
		return nil, "", &problem{status: http.StatusBadRequest, code: codePath, provider: p.spec.Name, message: "the path has a . or .. segment"}
	}
	if why := badMethod(r.Method); why != "" {
		return nil, "", &problem{status: http.StatusNotImplemented, code: codeMethod, provider: p.spec.Name, message: why}
	}
	return p, path, nil
}

// badMethod returns why the gateway sends no request with the method to a provider, or "".
func badMethod(method string) string {
	switch method {
	case http.MethodConnect:
		return "CONNECT: the gateway opens no tunnels; send the request itself to " + prefix + "<provider>/…"
	case http.MethodTrace:
		return "TRACE: the answer would have the provider's key, which the gateway adds; use GET"
	}
	return ""
}

// priorityOf returns the priority from the request's header, or the provider's default.
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

// newProxy returns the reverse proxy that forwards requests and answers.
func (g *Gateway) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			r := requestFrom(pr.In.Context())
			pr.Out.URL = below(r.asked.spec.BaseURL, r.path, r.query)
			pr.Out.Host = ""
			pr.Out.Trailer = pr.In.Trailer // the same map: the server sets the trailers after the body
			for _, name := range gatewayHeaders {
				delete(pr.Out.Header, name)
			}
		},
		Transport: providerTransport{},
		// The proxy always flushes event streams and answers without a length at once. For
		// other answers an immediate flush would cost a second write.
		FlushInterval:  flushAfter,
		BufferPool:     &buffers{},
		ModifyResponse: func(resp *http.Response) error { return requestFrom(resp.Request.Context()).response.modify(resp) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			requestFrom(r.Context()).response.writeError(w, err)
		},
		ErrorLog: log.New(&proxyLog{g}, "", 0),
	}
}

// flushAfter is how long the proxy waits for more of an answer before it flushes a part.
const flushAfter = 100 * time.Millisecond

// gatewayHeaders are request headers for the gateway itself, which providers must not get.
// The names are in canonical form.
var gatewayHeaders = []string{headerPriority, headerToken, headerCall}

// providerTransport sends a request under the policy of the provider that the caller
// asked for.
type providerTransport struct{}

// RoundTrip implements [http.RoundTripper].
func (providerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	r := requestFrom(req.Context())
	r.watchInterim(req.Context())
	return r.response.best(r.asked.transports.choose(req.Method, r.route).RoundTrip(req))
}

// buffers is the pool of buffers with which the proxy copies bodies.
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

// proxyLog writes the messages of the reverse proxy to the log at level debug. They report
// callers that disconnected and responses that broke off; the statistics count both.
type proxyLog struct{ g *Gateway }

// Write implements [io.Writer].
func (l *proxyLog) Write(p []byte) (int, error) {
	l.g.log.Debug(secret.Unquoted(l.g.redact(string(bytes.TrimSpace(p)))))
	return len(p), nil
}

// prefix is the path prefix of all requests for providers.
const prefix = "/p/"

// cutPath splits a path into the provider's name and the rest: ""
// or an escaped path that starts with a slash. ok is false if there is no name.
func cutPath(escaped string) (name, rest string, ok bool) {
	tail, ok := strings.CutPrefix(escaped, prefix)
	if !ok {
		return "", "", false
	}
	name, below, more := strings.Cut(tail, "/")
	if more {
		rest = "/" + below
	}
	return name, rest, name != ""
}

// hasDots reports whether the path has a . or .. segment in any spelling, or can't be
// unescaped. Such a path could leave the base URL.
func hasDots(escaped string) bool {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return true
	}
	// A server may take an escaped slash or a backslash for a slash.
	for segment := range strings.FieldsFuncSeq(plain, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";") // servers ignore such parameters
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// below returns the URL of a path below the base URL. rest is escaped, and
// stays as it was written.
func below(base *url.URL, rest, query string) *url.URL {
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, RawQuery: query}
	escaped := strings.TrimSuffix(base.EscapedPath(), "/") + rest
	if rest == "" {
		escaped = base.EscapedPath()
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		plain = escaped // hasDots has rejected such a path
	}
	u.Path, u.RawPath = plain, escaped
	return u
}

// unescaped returns the unescaped name or value of a query parameter. If s can't be
// unescaped, it returns s.
func unescaped(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}

// The headers between a caller and the gateway.
const (
	headerToken    = "X-Tideover-Token"
	headerPriority = "X-Tideover-Priority"
	headerProvider = "X-Tideover-Provider" // of a response: the provider that sent it
)

// tokenHeaders are the headers in which the SDKs of providers send a key. Clients of
// the gateway send the gateway's token in one of them.
var tokenHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", headerToken}

// authorizer decides which callers may use the gateway.
type authorizer struct {
	token secret.String
	hosts hosts.Set
}

// authorize returns why the request is rejected, or nil. It removes the gateway's token
// from the request, so that no provider gets it.
func (a *authorizer) authorize(r *http.Request) *problem {
	local := overSocket(r)
	if !local && !a.hosts.Has(r.Host) {
		return &problem{status: http.StatusMisdirectedRequest, code: codeHost, message: "unknown Host: use the address of the gateway or localhost, or add the name to server.hosts"}
	}
	if a.isCrossSite(r) {
		return &problem{status: http.StatusForbidden, code: codeCrossSite, message: "cross-site request: a page of another site sent it"}
	}
	if !a.token.IsZero() {
		if !a.takeToken(r.Header) && !local {
			return unauthorized("send the gateway's token as Authorization: Bearer, X-Api-Key, X-Goog-Api-Key or " + headerToken)
		}
		return nil
	}
	delete(r.Header, headerToken)
	if !local && !fromLoopback(r.RemoteAddr) {
		return unauthorized("without a token the gateway serves this machine only; set gateway.token to let others in")
	}
	return nil
}

func unauthorized(hint string) *problem {
	return &problem{status: http.StatusUnauthorized, code: codeToken, message: "the request has no valid token: " + hint}
}

// overSocket reports whether the request came over a Unix socket. The file mode of the
// socket decides who may use it.
func overSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

func fromLoopback(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// takeToken removes the gateway's token from all headers, and reports whether it found it.
func (a *authorizer) takeToken(h http.Header) (found bool) {
	for _, name := range tokenHeaders {
		v := httpheader.First(h, name)
		if name == "Authorization" {
			scheme, token, ok := strings.Cut(v, " ")
			if !ok || !strings.EqualFold(scheme, "Bearer") {
				continue
			}
			v = strings.TrimSpace(token)
		}
		if v != "" && a.token.Equal(v) {
			found = true
			delete(h, name)
		}
	}
	delete(h, headerToken) // providers must not get a wrong token either
	return found
}

// isCrossSite reports whether a browser sent the request from a page of another web
// site. It rejects all methods, because any request may cost money.
func (a *authorizer) isCrossSite(r *http.Request) bool {
	switch httpheader.First(r.Header, "Sec-Fetch-Site") {
	case "":
	case "same-origin", "none":
		return false
	default:
		return true
	}
	origin := httpheader.First(r.Header, "Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !hosts.Same(u.Host, r.Host) && !a.hosts.Names(u.Host)
}

// traffic counts the requests in progress.
type traffic struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // nil until stop is called; closed when no request is in progress
}

// enter counts one more request. It returns false after stop.
func (t *traffic) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle != nil {
		return false
	}
	t.n++
	return true
}

func (t *traffic) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
	}
}

// stop makes enter return false. The returned channel is closed when no request is in
// progress.
func (t *traffic) stop() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		if t.idle = make(chan struct{}); t.n == 0 {
			close(t.idle)
		}
	}
	return t.idle
}

func (t *traffic) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// reject answers a request that is rejected before it counts as one of a provider, and records
// it.
func (g *Gateway) reject(w http.ResponseWriter, req *http.Request, bad *problem) {
	r := &request{g: g, began: time.Now()}
	r.identify(g.callIDs)
	r.setCall(w.Header())
	bad.write(w)
	if g.records.off {
		return
	}
	g.records.end(recordRejected, &RequestInfo{
		Call: r.call, Time: r.began, Provider: bad.provider, Route: g.recordRoute(req.Method, requestPath(req)),
		Outcome: RequestRejected, Status: bad.status, Code: bad.code, Reason: bad.code, Error: recordText(g.redact(bad.message), maxRecordText),
		Seconds: time.Since(r.began).Seconds(), number: r.number,
	})
}

// requestPath returns the path of a request below its provider, or its whole path if that names
// no provider.
func requestPath(req *http.Request) string {
	escaped := req.URL.EscapedPath()
	if _, path, ok := cutPath(escaped); ok {
		return path
	}
	return escaped
}

// Reject answers a request that a handler in front of the gateway rejects, such as one beyond
// its limit of requests, like the gateway answers those that it rejects itself: with an id and a
// record. code is for programs, and message for people. after is when to try again; 0 means
// unknown.
func (g *Gateway) Reject(w http.ResponseWriter, req *http.Request, status int, code, message string, after time.Duration) {
	g.reject(w, req, &problem{status: status, code: code, message: message, after: after})
}

// recordRoute returns the route of a request for its record: its beginning if it is too long to
// be a route.
func (g *Gateway) recordRoute(method, path string) string {
	const longest = 8 << 10
	if len(path) > longest { // cut between two segments, because the redaction needs whole secrets
		path = path[:strings.LastIndexByte(path[:longest], '/')+1]
	}
	return recordText(g.redact(method+" "+withoutIDs(path)), maxLabel)
}
