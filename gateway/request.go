package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retryhttp"
)

// request is a request of a caller. Its targetPicker decides where its attempts go, and its
// response what the caller gets.
type request struct {
	incoming
	g     *Gateway
	asked *provider // the provider in the caller's URL
	route string
	began time.Time

	upload  upload
	body    watchedBody            // that the caller sends
	bodyErr atomic.Pointer[error]  // how reading the body failed
	model   atomic.Pointer[string] // which the request is for; nil means that it was not read

	picker   targetPicker
	response response
}

// incoming is what the gateway knows of a request when it comes in.
type incoming struct {
	caller   context.Context // ends when the caller disconnects, or at its deadline
	path     string          // below the provider, as it was written
	query    string
	class    limit.Priority
	deadline *callerDeadline // nil means none
	host     string          // the address that the caller used
	secure   bool            // the caller uses TLS
	retries  bool            // the caller retries, so that the gateway does not wait
}

type requestKey struct{}

// requestFrom returns the request that the context belongs to, or nil.
func requestFrom(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// newRequest returns a request for the provider, and counts it.
func newRequest(g *Gateway, p *provider, method string, in incoming) *request {
	r := &request{incoming: in, g: g, asked: p, route: routeOf(method, in.path), began: time.Now()}
	r.picker.init(r)
	r.response.request = r
	p.stats.requests.Add(1)
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

// callerGone reports whether the caller has disconnected, or has no time left.
func (r *request) callerGone() bool {
	err := r.caller.Err()
	return err != nil && !(r.upload.stopped.Load() && errors.Is(err, context.Canceled))
}

// scope returns what a provider throttles if it throttles this request: the route and,
// if the gateway has read it, the model.
func (r *request) scope() scope {
	s := scope{route: r.route}
	if model := r.model.Load(); model != nil {
		s.model = *model
	}
	return s
}

// waited adds the time since then to the statistics of waits.
func (r *request) waited(what string, since time.Duration) {
	if d := clock.Now() - since; d > time.Millisecond {
		r.asked.stats.waits.add(what, d.Seconds())
	}
}

// watchBody limits the request's body, and records an error of reading it: that is no
// fault of the provider.
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

// bodyError returns how reading the request's body failed.
func (r *request) bodyError() error {
	if err := r.bodyErr.Load(); err != nil {
		return *err
	}
	return nil
}

// watchedBody is the body of a request. It measures its reads, and keeps its error.
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
	if u.end(); err != nil {
		u.ended.Store(true)
	}
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) && !u.stopped.Load() {
		failure := err // so that err itself is not allocated for each read
		b.request.bodyErr.CompareAndSwap(nil, &failure)
	}
	return n, err
}

// upload measures how long the gateway waits for the body of a request. That time is the
// caller's: it does not count against the provider.
type upload struct {
	writer http.ResponseWriter // of the answer; nil means that the request has no body

	since atomic.Int64 // reading of the clock since which it waits; 0 means that it does not
	total atomic.Int64 // of the waits that are over

	ended   atomic.Bool // all of the body was read, or it can't be read
	stopped atomic.Bool // the gateway has ended a wait, and the server cancels the request
}

func (u *upload) begin() { u.since.Store(int64(clock.Now())) }

func (u *upload) end() {
	if since := u.since.Swap(0); since > 0 {
		u.total.Add(int64(clock.Now()) - since)
	}
}

// waits reports whether the gateway waits for the caller.
func (u *upload) waits() bool { return u.since.Load() > 0 }

// waited returns how long the gateway has waited so far.
func (u *upload) waited() time.Duration {
	total := u.total.Load()
	if since := u.since.Load(); since > 0 {
		total += int64(clock.Now()) - since
	}
	return time.Duration(total)
}

// drainTime is how long a server reads what a caller has sent already, before it answers
// that the time of the request is over.
const drainTime = 100 * time.Millisecond

// stop ends the wait for a body of which the rest is of no use. A server reads a body to
// its end before it answers, so that a caller which sends nothing would hold up the answer.
func (u *upload) stop() {
	if u == nil || u.writer == nil || u.ended.Load() || !u.stopped.CompareAndSwap(false, true) {
		return
	}
	at := time.Now()
	if !u.waits() {
		at = at.Add(drainTime)
	}
	_ = http.NewResponseController(u.writer).SetReadDeadline(at) // not all writers have one
}

// callerDeadline is a context that ends at the deadline of the caller.
type callerDeadline struct {
	context.Context
	at    time.Time     // of the first of the deadlines
	total time.Duration // after at, how long an event stream may take; below 0 means any time
	timer *time.Timer

	upload atomic.Pointer[upload] // of the request, which ends at the deadline
}

// withCallersDeadline returns a context that ends at the deadline that the headers of a
// request state, and nil if they state none. cancel frees what it holds.
func withCallersDeadline(parent context.Context, h http.Header) (d *callerDeadline, cancel func()) {
	left, ok := retryhttp.TimeLeft(h)
	if !ok {
		return nil, nil
	}
	d, cancel = withDeadline(parent, left)
	d.total = -1
	if total, ok := retryhttp.TotalTimeLeft(h); ok {
		d.total = total - left
	}
	return d, cancel
}

// withDeadline returns a context that ends after so long. cancel frees what it
// holds.
func withDeadline(parent context.Context, left time.Duration) (d *callerDeadline, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	d = &callerDeadline{Context: ctx, at: time.Now().Add(left)}
	if left <= 0 {
		end(context.DeadlineExceeded)
	}
	d.timer = time.AfterFunc(left, func() {
		end(context.DeadlineExceeded)
		d.upload.Load().stop()
	})
	return d, func() {
		d.timer.Stop()
		end(nil)
	}
}

// streamBegins lets an event stream go on after a deadline that is for the beginning of
// the answer. A deadline for all of it stays.
func (d *callerDeadline) streamBegins() {
	if d == nil || d.total == 0 || !d.timer.Stop() {
		return
	}
	if d.total > 0 {
		d.timer.Reset(time.Until(d.at) + d.total)
	}
}

// Deadline implements [context.Context].
func (d *callerDeadline) Deadline() (time.Time, bool) {
	if at, ok := d.Context.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

// Err implements [context.Context].
func (d *callerDeadline) Err() error {
	err := d.Context.Err()
	if err != nil && errors.Is(context.Cause(d.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}
