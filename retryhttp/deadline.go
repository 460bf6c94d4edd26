package retryhttp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/oneline"
)

// DeadlineConfig bounds the time of requests.
type DeadlineConfig struct {
	Max     time.Duration // no request has more time, also if its header asks for more; 0 means 10 minutes
	Default time.Duration // of a request that says nothing; 0 means Max
}

// defaultMax is what the SDKs of model providers wait for an answer.
const defaultMax = 10 * time.Minute

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c DeadlineConfig) Validate() error {
	var errs []error
	if c.Max < 0 {
		errs = append(errs, fmt.Errorf("max: %v is negative", c.Max))
	}
	if c.Default < 0 {
		errs = append(errs, fmt.Errorf("default: %v is negative", c.Default))
	}
	if most := cmp.Or(c.Max, defaultMax); c.Max >= 0 && c.Default > most {
		errs = append(errs, fmt.Errorf("default: %v is above max %v", c.Default, most))
	}
	return errors.Join(errs...)
}

// Deadline is an [http.Handler] that stops working for clients who no longer
// wait. The context of a request ends when the time is up that its sender has
// stated (see [TimeLeft]), and what the handler behind it sends on under that
// context ends with it. The context's cause is then a [*DeadlineError]. It also
// carries how often the request was sent before; see [WithPriorRetries].
//
// A request that comes without any time left is answered with 504 and never seen
// by the handler. When the time is up, the handler is expected to notice and to
// return: it is not abandoned, and nothing that it writes is kept back, so that
// streams, [http.ResponseController] and upgrades work as they do without a
// deadline. If it returns without having written anything, the answer is 504. An
// answer that it has begun, or given in spite of the deadline, is left as it is.
//
// The limit ends with the handler: a connection that the handler has hijacked and
// handed on is not touched. Reading the body of a request does not listen to the
// context; the ReadTimeout of the server is for clients that do not send.
type Deadline struct {
	next http.Handler
	cfg  DeadlineConfig
}

// NewDeadline returns a handler that calls next.
func NewDeadline(next http.Handler, cfg DeadlineConfig) (*Deadline, error) {
	err := cfg.Validate()
	if next == nil {
		err = errors.Join(errors.New("next: nil"), err)
	}
	if err != nil {
		return nil, refusal("NewDeadline", err)
	}
	cfg.Max = cmp.Or(cfg.Max, defaultMax)
	cfg.Default = cmp.Or(cfg.Default, cfg.Max)
	return &Deadline{next: next, cfg: cfg}, nil
}

// refusal is the error of a constructor, in one line.
func refusal(constructor string, err error) error {
	return fmt.Errorf("retryhttp.%s: %w", constructor, oneline.Error(err))
}

// ServeHTTP implements [http.Handler].
func (d *Deadline) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d == nil || d.next == nil {
		notMade(w, "Deadline")
		return
	}
	late := d.of(r.Header)
	ctx := r.Context()
	switch {
	case late.Limit <= 0:
		gatewayTimeout(w, late)
		return
	case overdue(ctx):
		gatewayTimeout(w, context.Cause(ctx))
		return
	}
	if n := PriorRetries(r.Header); n > 0 {
		ctx = WithPriorRetries(ctx, n)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, late.Limit, late)
	defer cancel()
	seen := &watched{ResponseWriter: w}
	serve(ctx, d.next, seen, r)
	if overdue(ctx) && seen.status() == 0 {
		gatewayTimeout(w, context.Cause(ctx))
	}
}

// of returns the deadline of a request with the headers.
func (d *Deadline) of(h http.Header) *DeadlineError {
	name, left, stated := shortestTimeout(h, timeoutHeaders[:])
	switch {
	case !stated:
		return &DeadlineError{Limit: d.cfg.Default}
	case left > d.cfg.Max:
		return &DeadlineError{Limit: d.cfg.Max}
	default:
		return &DeadlineError{Limit: left, Header: name}
	}
}

// overdue reports whether the context ran out of time, by our limit or by one
// around it. A client that went away needs no answer.
func overdue(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// serve calls the handler with a request of another context. The server removes
// the files of a form that was parsed from its own request, and does not know of
// the copy.
func serve(ctx context.Context, next http.Handler, w http.ResponseWriter, r *http.Request) {
	own := r.WithContext(ctx)
	defer func() {
		if own.MultipartForm != nil && r.MultipartForm == nil {
			_ = own.MultipartForm.RemoveAll()
		}
	}()
	next.ServeHTTP(w, own)
}

// DeadlineError is the cause with which the context of a request ends when its
// time is up. It matches [context.DeadlineExceeded].
type DeadlineError struct {
	Limit  time.Duration // the time that the request had
	Header string        // in which its sender said so; empty when it is the limit of the server
}

// Error says whose limit it was.
func (e *DeadlineError) Error() string {
	switch {
	case e.Header == "":
		return fmt.Sprintf("the time limit of %v has passed", e.Limit)
	case e.Limit <= 0:
		return e.Header + " leaves no time"
	}
	return fmt.Sprintf("the %v of %s have passed", e.Limit, e.Header)
}

// Unwrap returns [context.DeadlineExceeded].
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// Timeout implements the interface of net.Error.
func (e *DeadlineError) Timeout() bool { return true }

// notMade answers for a handler that was not made by its constructor.
func notMade(w http.ResponseWriter, kind string) {
	http.Error(w, "retryhttp: the "+kind+" was not made by New"+kind, http.StatusInternalServerError)
}

// gatewayTimeout answers 504, without what the handler may have said about an
// answer that did not come.
func gatewayTimeout(w http.ResponseWriter, cause error) {
	text := context.DeadlineExceeded.Error()
	if e, ok := errors.AsType[*DeadlineError](cause); ok {
		text = e.Error() // the cause of a foreign context may be private
	}
	for _, name := range [...]string{"Cache-Control", "Content-Encoding", "Expires", "Etag", "Last-Modified", "Set-Cookie", "Trailer"} {
		w.Header().Del(name)
	}
	http.Error(w, text, http.StatusGatewayTimeout)
}

// watched is a response writer that notes which status was answered. It keeps
// nothing back, and has all methods of the writer below.
type watched struct {
	http.ResponseWriter
	answered atomic.Int64 // the status; 0 while nothing was written
}

// hijacked is the status of a response whose connection was taken over.
const hijacked = -1

func (w *watched) status() int { return int(w.answered.Load()) }

func (w *watched) note(status int) { w.answered.CompareAndSwap(0, int64(status)) }

// WriteHeader implements [http.ResponseWriter].
func (w *watched) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.note(status) // others announce an answer that is still to come
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *watched) Write(p []byte) (int, error) {
	w.note(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// WriteString implements [io.StringWriter].
func (w *watched) WriteString(s string) (int, error) {
	w.note(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom implements [io.ReaderFrom], with which net/http sends files.
func (w *watched) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, r)
	if n > 0 {
		w.note(http.StatusOK)
	}
	return n, err
}

// Flush implements [http.Flusher].
func (w *watched) Flush() { _ = w.FlushError() }

// FlushError is what [http.ResponseController] calls.
func (w *watched) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.note(http.StatusOK)
	}
	return err
}

// Hijack implements [http.Hijacker].
func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.note(hijacked)
	}
	return c, rw, err
}

// Unwrap leads [http.ResponseController] to all the rest.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
