package gateway

import (
	"bytes"
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

// A request goes through the gateway like this. Its state, a *request, is in its context.
// These are all the files that lead it to a success at the first attempt. What they call
// beside that, such as counters, clocks and breakers, returns at once.
//
//	Gateway.ServeHTTP            checks the caller and finds the provider
//	newRequest                   request.go: what the caller asks for
//	httputil.ReverseProxy        copies the request and the response
//	transports.choose            upstream.go: the retryhttp.Transport of the provider
//	retryhttp.Transport          retryhttp/transport.go: makes an exchange
//	  retry.Runner.Resume        retry/call.go: makes the first attempt in its time
//	  exchange.attempt           retryhttp/exchange.go: the request of the attempt, with its
//	                             body (replay.go) and its time limits (timeout.go)
//	    router.Route             attempt.go: an attempt begins
//	      targetPicker.pick      pick.go: provider, gate, limits (upstream.go), and the key
//	                             (keypool.go, health/pool.go)
//	    upstreamTransport        upstream.go: sends it
//	    attempt.Done             attempt.go: reports the result to key, breaker and gate
//	response.best, modify        request.go: what the caller gets
//	response.finish              request.go: counts how the request ended
//
// After a failure, retry/loop.go asks router.Next: verdict.go says what the failure means
// and what follows, and wait.go waits if no provider takes the request.

// ServeHTTP implements [http.Handler].
func (g *Gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p, path, class, bad := g.admit(req)
	if bad != nil {
		bad.write(w)
		return
	}
	defer g.traffic.leave()
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
	defer r.response.finish()
	if most := p.spec.MaxBody; most > 0 && req.ContentLength > most {
		r.response.writeProblem(w, r.newProblem(http.StatusRequestEntityTooLarge, codeTooLarge, 0, fmt.Sprintf("the body has %d bytes, at most %d are allowed", req.ContentLength, most)))
		return
	}
	if ctx.Err() != nil { // its deadline had passed already
		r.asked.stats.late.Add(1)
		bad := r.newProblem(http.StatusGatewayTimeout, codeDeadline, 0, "the deadline of the request had passed when it came in")
		bad.final = true
		r.response.writeProblem(w, bad)
		return
	}
	req = req.WithContext(r.context())
	r.watchBody(w, req)
	w.Header()["Content-Type"] = nil // what a provider does not say is not guessed at
	defer abort(w)
	g.proxy.ServeHTTP(w, req)
	r.response.complete()
}

// admit checks the caller, finds the provider and counts the request as under way, or
// returns why the request is rejected.
func (g *Gateway) admit(req *http.Request) (p *provider, path string, class limit.Priority, bad *problem) {
	if bad = g.authorizer.authorize(req); bad == nil {
		p, path, bad = g.find(req)
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

// abort is deferred, and ends an answer that breaks off. It sends what is buffered, at
// least the head. A client that sees nothing of an answer takes it for a connection that
// failed, and sends the request again: a POST would be done, and billed, twice.
func abort(w http.ResponseWriter) {
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
		return nil, "", &problem{status: http.StatusNotFound, code: codePath, message: "the path has no provider: want " + prefix + "<provider>/…, with one of " + table.list()}
	case p == nil:
		return nil, "", &problem{status: http.StatusNotFound, code: codeProvider, message: "no such provider; configured: " + table.list()}
	case hasDots(path):
		return nil, "", &problem{status: http.StatusBadRequest, code: codePath, provider: name, message: "the path has a . or .. segment"}
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
		ModifyResponse: func(resp *http.Response) error { return requestFrom(resp.Request.Context()).response.modify(resp) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			requestFrom(r.Context()).response.writeError(w, err)
		},
		ErrorLog: log.New(&quiet{g}, "", 0),
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
	return r.response.best(r.asked.transports.choose(req.Method, r.route).RoundTrip(req))
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

// prefix is where the gateway stands.
const prefix = "/p/"

// cutPath returns the provider that the path asks for, and what is below it: ""
// or a path that starts with a slash, as it was written.
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
// unescaped: no request may climb out of a base URL.
func hasDots(escaped string) bool {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return true
	}
	// What is a slash in disguise to us may be one to a server.
	for segment := range strings.FieldsFuncSeq(plain, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";") // parameters, which servers take off
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// below returns the address of what is below the base URL. rest is escaped, and
// is passed on as it was written.
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

// unescaped returns the name of a query's parameter, or its value.
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
	headerProvider = "X-Tideover-Provider" // of a response: the provider that it is from
)

// tokenHeaders are the headers in which clients of the providers send a key. Clients of
// the gateway send its token there.
var tokenHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", headerToken}

// authorizer decides which callers may use the gateway.
type authorizer struct {
	token secret.String
	hosts hosts.Set
}

// authorize returns why the request is rejected, or nil. It removes the token, so that no
// provider gets it.
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

// overSocket reports whether the request came over a Unix socket. The mode of its file
// decides who may use it.
func overSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

func fromLoopback(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// takeToken removes the token from all headers, and reports whether it was in one.
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
	delete(h, headerToken) // a wrong one is not for others either
	return found
}

// isCrossSite reports whether a browser sent the request for the page of another web
// site. It applies to all methods, because any request may cost money.
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

// traffic counts the requests that are under way.
type traffic struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when there are none; nil while new ones are let in
}

// enter counts one more, unless there are to be no more.
func (t *traffic) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle != nil {
		return false
	}
	t.n++
	return true
}

func (t *traffic) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
	}
}

// stop lets no more in. The channel is closed when all have left.
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
