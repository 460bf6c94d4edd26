package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/retry"
)

// span is the time of one attempt up to the headers of its answer. A nil span
// has no limit and knows nothing.
type span struct {
	caller context.Context
	cancel context.CancelCauseFunc // nil where there is no limit
	stop   func() bool             // ends the runner's limit; false when it was reached before
	limit  time.Duration           // of this attempt, where the runner has none; 0 means none
	timer  *time.Timer             // of the limit
	idle   time.Duration           // the longest silence in a body; 0 means any
	held   bool                    // the answer's body is there, and the limits still hold
	late   bool                    // a limit was reached
	lost   bool                    // another attempt has won, or the call is over
	own    context.Context         // the request's
	call   context.Context         // the runner's attempt
	sent   *sent
}

// newSpan returns the span of an attempt and the context of its request, which
// outlives the attempt's by the time that the body is read.
func newSpan(attempt context.Context, x *exchange) (*span, context.Context) {
	own := x.req.Context()
	if !x.t.timed && x.idempotent {
		return nil, own
	}
	s := &span{caller: own, call: attempt, limit: x.t.limit, idle: x.t.streams.Idle}
	if x.t.timed {
		own, s.cancel = context.WithCancelCause(own)
		s.stop = func() bool { return true }
		if attempt != s.caller {
			s.stop = context.AfterFunc(attempt, func() { s.cancel(context.Cause(attempt)) })
			if x.t.router != nil {
				own = withDeadlineOf(own, attempt)
			}
		}
	}
	s.own = own
	if !x.idempotent {
		s.sent = new(sent)
		own = httptrace.WithClientTrace(own, s.sent.trace())
	}
	return s, own
}

// begin starts the attempt's own time: it goes out now.
func (s *span) begin(req *http.Request, t *Transport) {
	if len(t.deadlines) > 0 {
		call := req.Context()
		if s != nil {
			call = s.call
		}
		markDeadline(req, t.deadlines, t.policy.AttemptTimeout, call)
	}
	if s != nil && s.cancel != nil && s.limit > 0 {
		s.timer = time.AfterFunc(s.limit, func() { s.cancel(&retry.TimeoutError{Limit: s.limit}) })
	}
}

// answered takes the answer. Its context ends when the body has been read or
// closed; the limits hold until it is clear how the body begins.
func (s *span) answered(resp *http.Response, err error) (*http.Response, error) {
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
	h := held{ReadCloser: resp.Body, release: s.cancel, idle: s.idle}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = &upgraded{&h, w}
	} else {
		resp.Body = &h
	}
	return resp, nil
}

// close ends the limits of an answer. If one was reached, the answer's context has
// ended and the answer is of no use.
func (s *span) close(resp *http.Response) error {
	if s == nil || !s.held {
		return nil
	}
	late := s.end(nil)
	if late != nil {
		s.cancel(nil)
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
	}
	return late
}

// end ends the limits, and returns the error of an attempt that has reached one:
// what it met, if that says more.
func (s *span) end(err error) error {
	own := s.timer != nil && !s.timer.Stop()
	if s.stop() && !own {
		return nil
	}
	if s.caller.Err() != nil {
		return cmp.Or(err, context.Cause(s.caller))
	}
	limit, reached := errors.AsType[*retry.TimeoutError](context.Cause(s.own))
	if s.late, s.lost = reached, !reached; s.lost {
		return cmp.Or(err, context.Canceled)
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = context.DeadlineExceeded // the runner knows which limit it was
	}
	if own {
		return &retry.TimeoutError{Limit: limit.Limit, Err: err}
	}
	return err
}

// drop ends everything.
func (s *span) drop() {
	if s == nil || s.cancel == nil {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.stop()
	s.cancel(nil)
}

func (s *span) isLate() bool { return s != nil && s.late }

// unsent reports whether it is known that nothing was sent. A transport that
// does not trace leaves it open.
func (s *span) unsent() bool {
	return s != nil && s.sent != nil && s.sent.asked.Load() && !s.sent.got.Load()
}

// sent notes how far an attempt came.
type sent struct {
	asked, got atomic.Bool // asked for a connection, and got one
}

func (s *sent) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { s.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { s.got.Store(true) },
	}
}

// held is a response body with the context that it needs.
type held struct {
	io.ReadCloser
	release context.CancelCauseFunc
	idle    time.Duration // the longest silence; 0 means any
	timer   *time.Timer   // of the silence
	silent  atomic.Bool   // it was too long
}

func (h *held) Read(p []byte) (int, error) {
	if h.idle > 0 {
		h.listen()
	}
	n, err := h.ReadCloser.Read(p)
	if h.idle > 0 {
		h.timer.Stop()
	}
	if err != nil {
		h.release(nil)
		if h.silent.Load() {
			err = &SilenceError{h.idle}
		}
	}
	return n, err
}

// listen starts to measure the silence. It counts only while somebody reads:
// a slow reader is not a silent server.
func (h *held) listen() {
	if h.timer != nil {
		h.timer.Reset(h.idle)
		return
	}
	h.timer = time.AfterFunc(h.idle, func() {
		h.silent.Store(true)
		h.release(nil)
	})
}

// Close ends the context first: a Close may have to wait for a Read, which ends
// with the context.
func (h *held) Close() error {
	h.release(nil)
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
	*held
	io.Writer
}

func (u *upgraded) Read(p []byte) (int, error) { return u.ReadCloser.Read(p) }

// CloseWrite closes the connection's other half, as the body of net/http does.
func (u *upgraded) CloseWrite() error { return closeWrite(u.Writer) }
