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

// DeadlineConfig sets the time limits of requests for [NewDeadline].
type DeadlineConfig struct {
	Max     time.Duration // longest time of a request, even if its header asks for more; 0 means 10 minutes
	Default time.Duration // time of a request whose headers state none; 0 means Max
}

// defaultMax is how long the SDKs of model providers wait for an answer.
const defaultMax = 10 * time.Minute

// Validate returns all problems of the configuration, each with its field's name.
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

// Deadline is an [http.Handler] that ends the work for clients that no longer
// wait. The context of a request ends after the time that the client has
// stated (see [TimeLeft]), and so do requests that the handler sends under that
// context. The context's cause is then a [*DeadlineError]. The context also
// has the number of times that the request was sent before; see [WithPriorRetries].
//
// A request that arrives with no time left is answered with 504; the handler does not
// see it. At the deadline, the handler should notice the end of the context and
// return. Deadline waits for it and does not buffer what it writes, so streams,
// [http.ResponseController] and upgrades work as they do without a
// deadline. If the handler returns without an answer, the answer is 504. An
// answer that the handler has begun is left as it is.
//
// The limit ends with the handler: a connection that the handler has hijacked is not
// affected. Reading the body of a request does not end with the
// context; use the ReadTimeout of the server for clients that do not send.
type Deadline struct {
	next http.Handler
	cfg  DeadlineConfig
}

// NewDeadline returns a [Deadline] in front of next. It returns an error if next is nil or
// cfg is not valid.
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

// refusal returns the error of a constructor, in one line.
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

// of returns the time limit for a request with these headers, in the form of the error
// that a request gets when it exceeds the limit.
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

// overdue reports whether the context ended at a deadline, ours or that of an outer
// context. It is false if the client has disconnected: such a client needs no answer.
func overdue(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// serve calls the handler with a copy of the request that has another context. It
// removes the temporary files of a form parsed from the copy; the server removes only
// those of its own request.
func serve(ctx context.Context, next http.Handler, w http.ResponseWriter, r *http.Request) {
	own := r.WithContext(ctx)
	defer func() {
		if own.MultipartForm != nil && r.MultipartForm == nil {
			_ = own.MultipartForm.RemoveAll()
		}
	}()
	next.ServeHTTP(w, own)
}

// DeadlineError is the cause with which the context of a request ends at its
// deadline. It matches [context.DeadlineExceeded].
type DeadlineError struct {
	Limit  time.Duration // the time that the request had
	Header string        // name of the header that stated the time; "" if the server's limit applied
}

// Error says which limit has passed.
func (e *DeadlineError) Error() string {
	switch {
	case e.Header == "":
		return fmt.Sprintf("the time limit of %v has passed", e.Limit)
	case e.Limit <= 0:
		return e.Header + " leaves no time"
	}
	return fmt.Sprintf("the timeout of %v in %s has passed", e.Limit, e.Header)
}

// Unwrap returns [context.DeadlineExceeded].
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// Timeout implements net.Error.
func (e *DeadlineError) Timeout() bool { return true }

// notMade answers 500 for a handler that was not made by its constructor.
func notMade(w http.ResponseWriter, kind string) {
	http.Error(w, "retryhttp: the "+kind+" was not made by New"+kind, http.StatusInternalServerError)
}

// gatewayTimeout answers 504. It removes the headers that the handler may have set for
// its own answer.
func gatewayTimeout(w http.ResponseWriter, cause error) {
	text := context.DeadlineExceeded.Error()
	if e, ok := errors.AsType[*DeadlineError](cause); ok {
		text = e.Error() // only this text: the cause of another context may be private
	}
	for _, name := range [...]string{"Cache-Control", "Content-Encoding", "Expires", "Etag", "Last-Modified", "Set-Cookie", "Trailer"} {
		w.Header().Del(name)
	}
	http.Error(w, text, http.StatusGatewayTimeout)
}

// watched is a response writer that records the status of the answer. It buffers nothing,
// and passes on all methods of the writer that it wraps.
type watched struct {
	http.ResponseWriter
	answered atomic.Int64 // the status; 0 until something is written
}

// hijacked is recorded as the status if the handler hijacked the connection.
const hijacked = -1

func (w *watched) status() int { return int(w.answered.Load()) }

func (w *watched) note(status int) { w.answered.CompareAndSwap(0, int64(status)) }

// WriteHeader implements [http.ResponseWriter].
func (w *watched) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.note(status) // a status below 200 is informational: the answer is still to come
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

// FlushError flushes the writer below. [http.ResponseController] calls it.
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

// Unwrap gives [http.ResponseController] access to the other methods.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
