package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/retry"
)

// attemptTimer keeps the time limits of one attempt: until its response begins, those of
// the policy; then the one on silences. One context and one timer do for both. A nil
// attemptTimer has no limit and knows nothing.
type attemptTimer struct {
	caller context.Context
	call   context.Context         // the runner's attempt
	own    dated                   // the request's; its deadline is zero if that of the caller comes first
	cancel context.CancelCauseFunc // of own; nil where there is no limit
	stop   func() bool             // ends the watch over call; false when it has ended before; nil without one

	limit   time.Duration // of this attempt, where the runner has none; 0 means none
	idle    time.Duration // the longest silence in a body; 0 means any
	sized   time.Duration // the same for a body whose length is known; 0 means idle
	timer   *time.Timer   // nil if there is no limit at all
	body    pausingBody   // the request's, if the time in which it is awaited does not count
	answer  held          // the response's body, while the limits hold
	routed  attemptBody   // the same, if there is a router
	attempt Attempt       // of the router, if there is one

	mu        sync.Mutex    // held while it is decided what the timer is for
	mine      bool          // it is for limit
	began     time.Duration // when limit began to count, by the clock
	waited    time.Duration // for the request's body, since then
	waits     time.Duration // since when the request's body is awaited; 0 means that it is not
	ended     bool          // the limits no longer hold
	fired     bool          // a limit was reached
	stale     bool          // the timer was stopped when it had run out already
	listening bool          // for silences
	reading   bool          // a Read is under way
	silent    bool          // for too long
	held      bool          // the answer's body is there, and the limits still hold
	late      bool          // a limit was reached
	lost      bool          // another attempt has won, or the call is over
	sent      *sent
}

// dated is a context with the deadline of the whole call, at which another one
// ends it.
type dated struct {
	context.Context
	deadline time.Time
}

// Deadline implements [context.Context].
func (d *dated) Deadline() (time.Time, bool) { return d.deadline, true }

// newAttemptTimer returns the timer of an attempt and the context of its request, which
// outlives the attempt's by the time that the body is read.
func newAttemptTimer(attempt context.Context, x *exchange) (*attemptTimer, context.Context) {
	caller := x.req.Context()
	if !x.t.timed && x.idempotent {
		return nil, caller
	}
	s := &attemptTimer{caller: caller, call: attempt, limit: x.t.limit, idle: x.t.streams.Idle, sized: x.t.streams.Sized}
	own := caller
	if x.t.timed {
		s.own.Context, s.cancel = context.WithCancelCause(caller) //nolint:fatcontext // the timer is made for it
		own = s.watch(attempt, x.t)
	}
	if !x.idempotent {
		s.sent = new(sent)
		own = httptrace.WithClientTrace(own, s.sent.trace())
	}
	return s, own
}

// watch makes the limits of the runner's attempt those of the request. Its context
// is not asked for Done, which would cost another context and another timer, unless
// it may end for another reason than its time.
func (s *attemptTimer) watch(attempt context.Context, t *Transport) context.Context {
	at, ok := attempt.Deadline()
	if theirs, has := s.caller.Deadline(); attempt == s.caller || has && !at.Before(theirs) {
		ok = false // the caller's comes first
	}
	switch {
	case ok:
		s.own.deadline = at
		s.timer = time.AfterFunc(time.Until(at), s.fire)
	case s.limit > 0 || s.idle > 0 || s.sized > 0:
		s.timer = time.AfterFunc(never, s.fire)
	}
	if t.whole.hedger != nil && attempt != s.caller {
		s.stop = context.AfterFunc(attempt, func() { s.cancel(context.Cause(attempt)) })
	}
	if !ok || t.router == nil {
		return s.own.Context
	}
	return &s.own
}

// begin starts the attempt's own time: it goes out now.
func (s *attemptTimer) begin(req *http.Request, t *Transport, a Attempt) {
	if len(t.deadlines) > 0 {
		call := req.Context()
		if s != nil {
			call = s.call
		}
		markDeadline(call, req, t.deadlines, t.policy.AttemptTimeout)
	}
	if s == nil || s.cancel == nil || s.limit == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = a
	if at, ok := s.call.Deadline(); ok && time.Until(at) <= s.limit {
		return // the whole call has less
	}
	if s.fired || s.ended {
		return
	}
	s.mine, s.began = true, clock.Now()
	s.timer.Reset(s.limit)
}

// never is later than anything.
const never = math.MaxInt64

// fire is what the timer does.
func (s *attemptTimer) fire() {
	s.mu.Lock()
	switch {
	case s.stale:
		s.stale = false
	case s.listening:
		s.silent = s.reading
	case !s.ended:
		s.fired = !s.prolong()
	}
	over, last := s.silent || s.fired, s.fired && !s.mine
	a, ok := s.attempt.(Interruptible)
	s.mu.Unlock()
	if !over {
		return
	}
	s.cancel(nil)
	if ok && last {
		a.Interrupt()
	}
}

// prolong sets the timer anew by the time in which the request's body was awaited, and
// reports whether the attempt has time left. While the body is awaited only the limit of
// the whole call holds. It needs the lock.
func (s *attemptTimer) prolong() bool {
	if !s.mine {
		return false
	}
	now := clock.Now()
	left := s.limit - (now - s.began - s.waited)
	if s.waits > 0 {
		left = never
	}
	if left <= 0 {
		return false
	}
	if !s.own.deadline.IsZero() {
		whole := time.Until(s.own.deadline)
		if whole <= 0 {
			s.mine = false
			return false
		}
		left = min(left, whole)
	}
	s.timer.Reset(left)
	return true
}

// await says that the request's body is awaited from now on, or no longer.
func (s *attemptTimer) await(begins bool) {
	if s == nil || s.limit == 0 {
		return
	}
	now := clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if begins {
		s.waits = now
		return
	}
	if s.waits > 0 {
		s.waited += now - max(s.waits, s.began)
	}
	s.waits = 0
	// While the body was awaited the timer may have been set later than the limit.
	if s.mine && !s.ended && !s.fired && now-s.began > s.limit && !s.prolong() {
		s.timer.Reset(0)
	}
}

// pausingBody is the body of a request whose source may be slow. The time in which it is
// awaited is no part of the attempt's.
type pausingBody struct {
	io.ReadCloser
	s *attemptTimer
}

// pausing returns the body whose reads stop the attempt's time.
func (s *attemptTimer) pausing(body io.ReadCloser) io.ReadCloser {
	if s == nil || s.limit == 0 || body == nil || body == http.NoBody {
		return body
	}
	s.body = pausingBody{body, s}
	return &s.body
}

// Read implements [io.Reader].
func (b *pausingBody) Read(p []byte) (int, error) {
	b.s.await(true)
	defer b.s.await(false)
	return b.ReadCloser.Read(p)
}

// listen makes the timer one for silences. A read may have begun before.
func (s *attemptTimer) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening = true; s.reading && s.idle > 0 {
		s.timer.Reset(s.idle)
	}
}

// read says that a Read begins or ends. It returns whether the
// silence was too long.
func (s *attemptTimer) read(begins bool) bool {
	if s.idle == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading = begins; s.listening && begins {
		s.timer.Reset(s.idle)
	} else if s.listening {
		s.timer.Stop()
	}
	return s.silent
}

// answered takes the answer. Its context ends when the body has been read or
// closed; the limits hold until it is clear how the body begins.
func (s *attemptTimer) answered(resp *http.Response, err error) (*http.Response, error) {
	if s == nil || s.cancel == nil {
		return resp, err
	}
	if err != nil {
		if late := s.end(err); late != nil {
			err = late
		}
		s.cancel(nil)
		return resp, err
	}
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		s.drop() // it is complete, however late
		return resp, nil
	}
	s.held = true
	if resp.ContentLength > 0 && s.sized > 0 {
		s.idle = s.sized
	}
	s.answer = held{resp.Body, s}
	resp.Body = upgradable(&s.answer, resp.Body)
	return resp, nil
}

// close ends the limits of an answer. If one was reached, the answer's context has
// ended and the answer is of no use.
func (s *attemptTimer) close(resp *http.Response) error {
	if s == nil || !s.held {
		return nil
	}
	late := s.end(nil)
	if late == nil {
		s.listen()
		return nil
	}
	s.cancel(nil)
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	return late
}

// end ends the limits, and returns the error of an attempt that has reached one:
// what it met, if that says more.
func (s *attemptTimer) end(err error) error {
	s.mu.Lock()
	fired, mine := s.fired, s.mine
	s.ended = true
	s.stale = s.timer != nil && !s.timer.Stop() && !fired
	s.mu.Unlock()
	if ended := s.stop != nil && !s.stop(); !ended && !fired {
		return nil
	}
	if s.caller.Err() != nil {
		return cmp.Or(err, context.Cause(s.caller))
	}
	if s.late = fired || is[*retry.TimeoutError](context.Cause(s.call)); !s.late {
		s.lost = true
		return cmp.Or(err, context.Canceled)
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = context.DeadlineExceeded // the runner knows which limit it was
	}
	if mine && fired {
		return &retry.TimeoutError{Limit: s.limit, Err: err}
	}
	return err
}

// drop ends everything.
func (s *attemptTimer) drop() {
	if s == nil || s.cancel == nil {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.stop != nil {
		s.stop()
	}
	s.cancel(nil)
}

func (s *attemptTimer) isLate() bool { return s != nil && s.late }

// unsent reports whether it is known that nothing was sent. A transport that
// does not trace leaves it open.
func (s *attemptTimer) unsent() bool {
	return s != nil && s.sent != nil && s.sent.asked.Load() && !s.sent.got.Load()
}

// sent notes how far an attempt came.
type sent struct {
	asked, got atomic.Bool // asked for a connection, and got one
	hooks      httptrace.ClientTrace
}

func (s *sent) trace() *httptrace.ClientTrace {
	s.hooks.GetConn = func(string) { s.asked.Store(true) }
	s.hooks.GotConn = func(httptrace.GotConnInfo) { s.got.Store(true) }
	return &s.hooks
}

// held is a response body with the context that it needs.
type held struct {
	io.ReadCloser
	s *attemptTimer
}

// Read ends with the silence that is too long. It counts only during a
// Read: a slow reader is not a silent server.
func (h *held) Read(p []byte) (int, error) {
	h.s.read(true)
	n, err := h.ReadCloser.Read(p)
	silent := h.s.read(false)
	if err != nil {
		h.s.cancel(nil)
		if silent {
			err = &SilenceError{h.s.idle}
		}
	}
	return n, err
}

// Close ends the context first: a Close may have to wait for a Read, which ends
// with the context.
func (h *held) Close() error {
	h.s.cancel(nil)
	return h.ReadCloser.Close()
}

// SilenceError is how the body of an answer ends that went silent for longer
// than [Streams].Idle.
type SilenceError struct{ For time.Duration }

// Error says how long it was silent.
func (e *SilenceError) Error() string { return "the answer went silent for " + e.For.String() }

// Timeout implements [net.Error].
func (*SilenceError) Timeout() bool { return true }

// Temporary implements [net.Error].
func (*SilenceError) Temporary() bool { return true }

// upgraded is the connection after a 101. Its end of input is not its end.
type upgraded struct {
	io.ReadCloser // which ends with its input
	io.Writer
	input io.Reader
}

// upgradable returns the wrapped body, so that it can be written to if the body can.
func upgradable(wrapped, body io.ReadCloser) io.ReadCloser {
	if w, ok := body.(io.Writer); ok {
		return &upgraded{wrapped, w, body}
	}
	return wrapped
}

func (u *upgraded) Read(p []byte) (int, error) { return u.input.Read(p) }

// CloseWrite closes the connection's other half, as the body of net/http does.
func (u *upgraded) CloseWrite() error {
	if c, ok := u.Writer.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
