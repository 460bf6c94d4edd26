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
	late   bool
	sent   *sent
}

// newSpan returns the span of an attempt and the context of its request, which
// outlives the attempt's by the time that the body is read.
func newSpan(attempt context.Context, x *exchange) (*span, context.Context) {
	own := x.req.Context()
	if !x.t.timed && x.idempotent {
		return nil, own
	}
	s := &span{caller: own, limit: x.t.limit, idle: x.t.streams.Idle}
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
	if !x.idempotent {
		s.sent = new(sent)
		own = httptrace.WithClientTrace(own, s.sent.trace())
	}
	return s, own
}

// begin starts the attempt's own time: it goes out now.
func (s *span) begin(req *http.Request, t *Transport) {
	if len(t.deadlines) > 0 {
		markDeadline(req, t.deadlines, t.policy.AttemptTimeout)
	}
	if s != nil && s.cancel != nil && s.limit > 0 {
		s.timer = time.AfterFunc(s.limit, func() { s.cancel(&retry.TimeoutError{Limit: s.limit}) })
	}
}

// over reports whether a limit has been reached.
func (s *span) over() bool { return s != nil && s.cancel != nil && !s.stop() }

// answered ends the span. The limit no longer holds for what comes after the
// headers; the context ends when the body has been read or closed.
func (s *span) answered(resp *http.Response, err error) (*http.Response, error) {
	if s == nil || s.cancel == nil {
		return resp, err
	}
	own := s.timer != nil && !s.timer.Stop()
	inTime := s.stop() && !own
	if err == nil && (resp == nil || resp.Body == nil || resp.Body == http.NoBody) {
		s.cancel(nil)
		return resp, nil // it is complete, however late
	}
	if !inTime {
		return nil, s.expired(resp, err, own)
	}
	if err != nil {
		s.cancel(nil)
		return resp, err
	}
	h := held{ReadCloser: resp.Body, release: s.cancel, idle: s.idle}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = &upgraded{&h, w}
	} else {
		resp.Body = &h
	}
	return resp, nil
}

// expired returns the error of an attempt whose time is up, also when its
// answer came at the same moment: the context of that body has ended.
func (s *span) expired(resp *http.Response, err error, own bool) error {
	s.cancel(nil)
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if s.caller.Err() != nil {
		return cmp.Or(err, context.Cause(s.caller))
	}
	s.late = true
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = context.DeadlineExceeded // the runner knows which limit it was
	}
	if own {
		return &retry.TimeoutError{Limit: s.limit, Err: err}
	}
	return err
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

func (h *held) Close() error {
	defer h.release(nil)
	return h.ReadCloser.Close()
}

// SilenceError is how the body of an answer ends that went silent for longer
// than [Streams].Idle.
type SilenceError struct{ For time.Duration }

// Error says how long it was silent.
func (e *SilenceError) Error() string { return "the answer went silent for " + e.For.String() }

// Timeout implements the interface of net.Error and os.IsTimeout.
func (*SilenceError) Timeout() bool { return true }

// upgraded is the connection after a 101. Its end of input is not its end.
type upgraded struct {
	*held
	io.Writer
}

func (u *upgraded) Read(p []byte) (int, error) { return u.ReadCloser.Read(p) }

// CloseWrite closes the connection's other half, as the body of net/http does.
func (u *upgraded) CloseWrite() error { return closeWrite(u.Writer) }
