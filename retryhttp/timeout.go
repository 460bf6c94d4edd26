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

// attemptTimer enforces the time limits of one attempt: first those of the policy, and
// once the response begins, the limit on silence. It uses one context and one timer for
// both. A nil attemptTimer has no limits.
type attemptTimer struct {
	caller context.Context
	call   context.Context         // context of the runner's attempt
	own    dated                   // context of the request; its deadline is zero if the caller's comes first
	cancel context.CancelCauseFunc // cancels own; nil if there is no limit
	stop   func() bool             // ends the watch over call; returns false if call has ended before; nil if there is no watch

	limit   time.Duration // attempt-timeout, if the runner does not enforce it; 0 means none
	idle    time.Duration // longest silence in a body; 0 means no limit
	sized   time.Duration // the same for a body of known length; 0 means idle
	timer   *time.Timer   // nil if there is no limit at all
	body    pausingBody   // the request's body, if limit does not include the time of waiting for it
	answer  held          // the response's body, while the limits apply
	routed  attemptBody   // the same, if there is a router
	attempt Attempt       // the router's attempt; nil without a router

	mu        sync.Mutex    // protects the fields that fire reads or sets
	mine      bool          // the timer is set for limit
	began     time.Duration // reading of the clock when limit began
	waited    time.Duration // time spent waiting for the request's body since began
	waits     time.Duration // reading of the clock when the current wait for the request's body began; 0 means no wait
	ended     bool          // the limits of the policy no longer apply
	fired     bool          // the timer has reached a limit
	stale     bool          // the timer ran out before it was stopped, so its next call of fire is void
	listening bool          // the timer is set for silence
	reading   bool          // a Read is in progress
	silent    bool          // the silence was too long
	held      bool          // the response's body exists, and the limits still apply
	late      bool          // the attempt reached a time limit
	lost      bool          // another attempt has won, or the call has ended
	sent      *sent
}

// dated is a context with the deadline of the whole call. It does not enforce the
// deadline: the attemptTimer cancels the context below.
type dated struct {
	context.Context
	deadline time.Time
}

// Deadline implements [context.Context].
func (d *dated) Deadline() (time.Time, bool) { return d.deadline, true }

// newAttemptTimer returns the timer of an attempt and the context of its request. That
// context outlives the attempt's context until the response body has been read.
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

// watch applies the limits of the runner's attempt to the request. It calls Done of the
// attempt's context only if the attempt may be canceled for another reason than time,
// that is, by a hedger: Done would cost another context and another timer.
func (s *attemptTimer) watch(attempt context.Context, t *Transport) context.Context {
	at, ok := attempt.Deadline()
	if theirs, has := s.caller.Deadline(); attempt == s.caller || has && !at.Before(theirs) {
		ok = false // the caller's deadline comes first
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

// begin starts the time limit of the attempt, just before the request is sent.
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
		return // the deadline of the whole call comes first
	}
	if s.fired || s.ended {
		return
	}
	s.mine, s.began = true, clock.Now()
	s.timer.Reset(s.limit)
}

// never is the longest duration, for a timer that must not run out.
const never = math.MaxInt64

// fire runs when the timer runs out.
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

// prolong resets the timer by the time of waiting for the request's body, and reports
// whether the attempt has time left. During such a wait only the deadline of
// the whole call applies. The caller holds mu.
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

// await records that a wait for the request's body begins or ends.
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
	// During the wait the timer may have been set to a time after the limit.
	if s.mine && !s.ended && !s.fired && now-s.began > s.limit && !s.prolong() {
		s.timer.Reset(0)
	}
}

// pausingBody is the body of a request whose source may be slow. The limit of the attempt
// does not include the time of its reads.
type pausingBody struct {
	io.ReadCloser
	s *attemptTimer
}

// pausing wraps the body so that its reads do not count against the attempt's limit.
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

// listen sets the timer for silence from now on. A Read may already be in progress.
func (s *attemptTimer) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening = true; s.reading && s.idle > 0 {
		s.timer.Reset(s.idle)
	}
}

// read records that a Read of the response body begins or ends. It returns whether the
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

// answered takes the result of the transport below. If the response has a body, the
// context of the attempt ends when that body has been read or closed, and the limits of
// the attempt apply until [attemptTimer.close].
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
		s.drop() // the response is complete, however late
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

// close ends the limits of the policy and starts the limit on silence. If a limit was
// reached, the context has ended, so close discards the response and returns an error.
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

// end ends the limits. If the attempt has reached one, or has lost, it returns the
// error of the attempt: err, or one that says that a limit was reached.
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
	switch canceled := err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); {
	case canceled && is[*unprocessedError](err):
		err = &unprocessedError{context.DeadlineExceeded}
	case canceled:
		err = context.DeadlineExceeded // the runner knows which limit was reached
	}
	if mine && fired {
		return &retry.TimeoutError{Limit: s.limit, Err: err}
	}
	return err
}

// drop ends the timer, the watch and the context.
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

// unsent reports whether it is certain that nothing was sent. It is false if the
// transport below does not support httptrace.
func (s *attemptTimer) unsent() bool {
	return s != nil && s.sent != nil && s.sent.asked.Load() && !s.sent.got.Load()
}

// sent records whether an attempt got a connection.
type sent struct {
	asked, got atomic.Bool // asked for a connection; got one
	hooks      httptrace.ClientTrace
}

func (s *sent) trace() *httptrace.ClientTrace {
	s.hooks.GetConn = func(string) { s.asked.Store(true) }
	s.hooks.GotConn = func(httptrace.GotConnInfo) { s.got.Store(true) }
	return &s.hooks
}

// held is a response body that ends the request's context when it has been read.
type held struct {
	io.ReadCloser
	s *attemptTimer
}

// Read fails if the server is silent for too long. Only time within a
// Read counts, so that a slow caller is not taken for a silent server.
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

// Close cancels the context first: closing the body may have to wait for a Read, which
// ends with the context.
func (h *held) Close() error {
	h.s.cancel(nil)
	return h.ReadCloser.Close()
}

// SilenceError is the error of reading the body of an answer that was silent for longer
// than [Streams].Idle.
type SilenceError struct{ For time.Duration }

// Error says how long the answer was silent.
func (e *SilenceError) Error() string { return "the answer went silent for " + e.For.String() }

// Timeout implements [net.Error].
func (*SilenceError) Timeout() bool { return true }

// Temporary implements [net.Error].
func (*SilenceError) Temporary() bool { return true }

// upgraded is the connection after a 101. It is still writable after its input has
// ended.
type upgraded struct {
	io.ReadCloser // for Close only: its Read would cancel the context at the end of the input
	io.Writer
	input io.Reader
}

// upgradable returns wrapped, made writable if body is writable.
func upgradable(wrapped, body io.ReadCloser) io.ReadCloser {
	if w, ok := body.(io.Writer); ok {
		return &upgraded{wrapped, w, body}
	}
	return wrapped
}

func (u *upgraded) Read(p []byte) (int, error) { return u.input.Read(p) }

// CloseWrite closes the writing half of the connection, as the body of net/http does.
func (u *upgraded) CloseWrite() error {
	if c, ok := u.Writer.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
