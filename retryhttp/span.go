package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// span is the time of one attempt up to the headers of its answer. A nil span
// has no limit and knows nothing.
type span struct {
	caller context.Context
	cancel context.CancelCauseFunc // nil where there is no limit
	stop   func() bool             // ends the limit; false when it was reached before
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
	s := &span{caller: own}
	if x.t.timed {
		var cancel context.CancelCauseFunc
		own, cancel = context.WithCancelCause(own)
		s.cancel = cancel
		s.stop = context.AfterFunc(attempt, func() { cancel(context.Cause(attempt)) })
	}
	if !x.idempotent {
		s.sent = new(sent)
		own = httptrace.WithClientTrace(own, s.sent.trace())
	}
	return s, own
}

// answered ends the span. The limit no longer holds for what comes after the
// headers; the context ends when the body has been read or closed.
func (s *span) answered(resp *http.Response, err error) (*http.Response, error) {
	if s == nil || s.cancel == nil {
		return resp, err
	}
	inTime := s.stop()
	if err == nil && (resp == nil || resp.Body == nil || resp.Body == http.NoBody) {
		s.cancel(nil)
		return resp, nil // it is complete, however late
	}
	if !inTime {
		return nil, s.expired(resp, err)
	}
	if err != nil {
		s.cancel(nil)
		return resp, err
	}
	h := held{resp.Body, s.cancel}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = &upgraded{h, w}
	} else {
		resp.Body = &h
	}
	return resp, nil
}

// expired returns the error of an attempt whose time is up, also when its
// answer came at the same moment: the context of that body has ended.
func (s *span) expired(resp *http.Response, err error) error {
	s.cancel(nil)
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if s.caller.Err() != nil {
		return cmp.Or(err, context.Cause(s.caller))
	}
	s.late = true
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return context.DeadlineExceeded // the runner knows which limit it was
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
}

func (h *held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if err != nil {
		h.release(nil)
	}
	return n, err
}

func (h *held) Close() error {
	defer h.release(nil)
	return h.ReadCloser.Close()
}

// upgraded is the connection after a 101. Its end of input is not its end.
type upgraded struct {
	held
	io.Writer
}

func (u *upgraded) Read(p []byte) (int, error) { return u.ReadCloser.Read(p) }

// CloseWrite closes the connection's other half, as the body of net/http does.
func (u *upgraded) CloseWrite() error {
	if c, ok := u.Writer.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
