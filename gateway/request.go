package gateway

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// request is a request of a caller. Its targetPicker decides where the attempts go, and its
// response has what the caller gets.
type request struct {
	incoming
	g     *Gateway
	asked *provider // the provider in the caller's URL
	route string
	began time.Time

	writer http.ResponseWriter // of the caller's response; nil for a caller in this process

	call       uint64    // its id, see headerCall
	callHeader [1]string // the id as the value of a header; see setCall
	number     uint64    // in the order of arrival
	method     string
	timeline   atomic.Pointer[timeline] // nil means that there is nothing to record so far
	ended      atomic.Bool
	sampled    bool // it is recorded even if it succeeds at once

	upload  upload
	body    watchedBody            // the body that the caller sends
	sending responseBody           // the body that the caller gets
	bodyErr atomic.Pointer[error]  // error of reading the body
	model   atomic.Pointer[string] // the model that the request names; nil means not read

	picker   targetPicker
	response response
}

// incoming is what the gateway knows of a request when it arrives.
type incoming struct {
	caller   context.Context // ends when the caller disconnects, or at its deadline
	path     string          // path below the provider, escaped
	query    string
	class    limit.Priority
	deadline *callerDeadline // nil means none
	host     string          // value of the Host header
	secure   bool            // the caller uses TLS
	retries  bool            // the caller retries, so the gateway does not wait
}

type requestKey struct{}

// requestFrom returns the request that the context belongs to, or nil.
func requestFrom(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// newRequest returns a request for the provider, and counts it in the statistics.
func newRequest(g *Gateway, p *provider, method string, in incoming) *request {
	r := &request{incoming: in, g: g, asked: p, route: routeOf(method, in.path), method: method, began: time.Now()}
	r.identify(g.callIDs)
	r.picker.init(r)
	r.response.request = r
	p.stats.requests.Add(1)
	if p.stats.takeSample(r.began.Sub(g.started)) {
		r.sampled = true
		r.keep()
	}
	return r
}

// context returns the context of the request's attempts.
func (r *request) context() context.Context {
	ctx := r.caller
	if r.class != limit.Normal {
		ctx = limit.WithPriority(ctx, r.class)
	}
	return context.WithValue(ctx, requestKey{}, r)
}

// callerGone reports whether the caller has disconnected or its deadline has passed. It
// ignores a cancellation that upload.stop has caused.
func (r *request) callerGone() bool {
	err := r.caller.Err()
	return err != nil && !(r.upload.stopped.Load() && errors.Is(err, context.Canceled))
}

// scope returns the scope of a throttle that this request causes or obeys: the route and,
// if the gateway has read it, the model.
func (r *request) scope() scope {
	s := scope{route: r.route}
	if model := r.model.Load(); model != nil {
		s.model = *model
	}
	return s
}

// watchBody limits the size of the request's body and records an error of reading it,
// because such an error is not the provider's fault.
func (r *request) watchBody(w http.ResponseWriter, req *http.Request) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	if most := r.asked.spec.MaxBody; most > 0 {
		req.Body = http.MaxBytesReader(w, req.Body, most)
	}
	r.body = watchedBody{req.Body, r}
	req.Body = &r.body
	r.upload.writer = w
	if r.deadline != nil {
		r.deadline.upload.Store(&r.upload)
	}
}

// bodyError returns the error of reading the request's body, or nil.
func (r *request) bodyError() error {
	if err := r.bodyErr.Load(); err != nil {
		return *err
	}
	return nil
}

// watchedBody is the body of a request. It measures its reads and records its error.
type watchedBody struct {
	io.ReadCloser
	request *request
}

func (b *watchedBody) Read(p []byte) (int, error) {
	u := &b.request.upload
	if u.stopped.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	u.begin()
	n, err := b.ReadCloser.Read(p)
	u.bytes.Add(int64(n))
	if u.end(); err != nil {
		u.ended.Store(true)
	}
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) && !u.stopped.Load() {
		failure := err // a copy, so that err is not allocated for each read
		b.request.bodyErr.CompareAndSwap(nil, &failure)
	}
	return n, err
}

// upload measures how long the gateway waits for the body of a request. This time does
// not count against the provider.
type upload struct {
	writer http.ResponseWriter // writer of the response; nil means that the request has no body

	since atomic.Int64 // reading of the clock when the current wait began; 0 means no wait
	total atomic.Int64 // duration of all finished waits
	bytes atomic.Int64 // bytes that were read

	ended   atomic.Bool // the body was read to its end, or failed
	stopped atomic.Bool // stop has ended the wait, so the server cancels the request's context
}

func (u *upload) begin() { u.since.Store(int64(clock.Now())) }

func (u *upload) end() {
	if since := u.since.Swap(0); since > 0 {
		u.total.Add(int64(clock.Now()) - since)
	}
}

// waits reports whether the gateway is waiting for a part of the body.
func (u *upload) waits() bool { return u.since.Load() > 0 }

// waited returns the duration of all waits so far.
func (u *upload) waited() time.Duration {
	total := u.total.Load()
	if since := u.since.Load(); since > 0 {
		total += int64(clock.Now()) - since
	}
	return time.Duration(total)
}

// responseBody is the body of a response on its way to the caller. It counts the bytes.
type responseBody struct {
	io.ReadCloser
	request *request
	resp    *http.Response
	bytes   atomic.Int64
}

// Read implements [io.Reader].
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	if t := b.request.timeline.Load(); t != nil {
		t.readTokens(p[:n], err != nil)
	}
	if err != nil && len(b.resp.Trailer) > 0 {
		delete(b.resp.Trailer, headerCall)
	}
	return n, err
}

// watchResponse makes the request count the bytes of its response. It does not change the
// connection of a 101.
func (r *request) watchResponse(resp *http.Response) {
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == nil {
		return
	}
	delete(resp.Trailer, headerCall)
	if t := r.timeline.Load(); t != nil && wantsTokens(resp) {
		t.wantTokens()
	}
	r.sending.ReadCloser, r.sending.request, r.sending.resp = resp.Body, r, resp
	resp.Body = &r.sending
}

// drainTime is how long the server may read the rest of a body before it answers that
// the deadline of the request has passed.
const drainTime = 100 * time.Millisecond

// stop ends the wait for the rest of a body that is no longer needed. A server reads a
// body to its end before it answers, so a caller that sends nothing would delay the answer.
func (u *upload) stop() {
	if u == nil || u.writer == nil || u.ended.Load() || !u.stopped.CompareAndSwap(false, true) {
		return
	}
	at := time.Now()
	if !u.waits() {
		at = at.Add(drainTime)
	}
	_ = http.NewResponseController(u.writer).SetReadDeadline(at) // not all writers support it
}

// headerCall is the header of a response that has the id of its request. Events, log lines and
// the record of the request have the same id.
const headerCall = "X-Tideover-Call"

// callBits is the number of bits of an id without the highest, which is always set. So ids have
// 16 digits, and fit into the numbers of JavaScript.
const callBits = 52

// callIDs makes the ids of requests. They are unique in a process and unlikely to repeat after a
// restart. They are no secret.
type callIDs struct {
	last   atomic.Uint64
	factor uint64 // odd, so that different counts have different ids
	offset uint64
}

func newCallIDs() *callIDs { return &callIDs{factor: rand.Uint64() | 1, offset: rand.Uint64()} }

// next returns the id of a new request, and its number in the order of arrival.
func (c *callIDs) next() (id, number uint64) {
	number = c.last.Add(1)
	const top = 1 << callBits
	return (number*c.factor+c.offset)&(top-1) | top, number
}

// callOf returns the id of the request that a context belongs to.
func callOf(ctx context.Context) uint64 {
	if r := requestFrom(ctx); r != nil {
		return r.call
	}
	return 0
}

// setCall sets the id of the request in the headers of its response. It replaces an id that the
// provider has set: a provider may be another gateway.
func (r *request) setCall(h http.Header) { h[headerCall] = r.callHeader[:] }

// identify gives the request its id.
func (r *request) identify(ids *callIDs) {
	r.call, r.number = ids.next()
	r.callHeader[0] = strconv.FormatUint(r.call, 10)
}

// watchInterim sets the id of the request in interim responses, such as 103. The proxy passes
// these on by itself; ctx is the context of its request.
func (r *request) watchInterim(ctx context.Context) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil || trace.Got1xxResponse == nil {
		return
	}
	pass := trace.Got1xxResponse
	trace.Got1xxResponse = func(code int, header textproto.MIMEHeader) error {
		r.setCall(http.Header(header))
		return pass(code, header)
	}
}
