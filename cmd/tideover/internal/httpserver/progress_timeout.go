package httpserver

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// DefaultProgressTimeout is how long a client may neither send nor receive before
// [ProgressTimeout] closes its connection.
const DefaultProgressTimeout = time.Minute

// ProgressTimeout returns a handler that limits the time of each read and write instead of the time
// of the whole request, for long uploads and streams. It disconnects a client that makes no progress
// for between one and two times the timeout.
func ProgressTimeout(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := &progressWriter{ResponseWriter: w, rc: http.NewResponseController(w), timeout: timeout, perWrite: r.ProtoMajor > 1}
		if r.Body != nil && r.Body != http.NoBody {
			body := &progressBody{ReadCloser: r.Body, rc: own.rc, timeout: timeout}
			r.Body = body
			defer body.release()
			if !own.perWrite {
				body.extend() // also limits the reads of net/http after a handler that did not read the whole body
			}
		}
		if !own.perWrite {
			own.extend() // replaces the deadline that the previous request on this connection has set
		}
		next.ServeHTTP(own, r)
	})
}

// progressBody is a request body with a deadline for each read.
type progressBody struct {
	io.ReadCloser
	timeout time.Duration

	mu       sync.Mutex
	rc       *http.ResponseController // nil after the handler has returned
	deadline time.Time                // the current read deadline
}

// extend sets the deadline to twice the timeout from now if less than the timeout is left. Setting it
// for every read would cost more.
func (b *progressBody) extend() {
	if now := time.Now(); b.deadline.Sub(now) < b.timeout {
		b.setDeadline(now.Add(2 * b.timeout))
	}
}

// setDeadline sets the deadline of reads, unless the handler has returned.
func (b *progressBody) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rc != nil {
		b.deadline = t
		_ = b.rc.SetReadDeadline(t) // not all writers support deadlines
	}
}

// release makes the body stop setting deadlines; it is called when the handler has returned. A
// transport that forwards the body may still read it then, and with HTTP/2 setting a deadline would
// panic.
func (b *progressBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rc = nil
}

// Read implements [io.Reader].
func (b *progressBody) Read(p []byte) (int, error) {
	b.extend()
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.setDeadline(time.Time{}) // net/http keeps reading in the background, to notice when the client disconnects
	}
	return n, err
}

// progressWriter is a response with a deadline for each write.
type progressWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	timeout  time.Duration
	perWrite bool      // remove the deadline after each write: HTTP/2 resets a stream whose deadline passes between two writes
	deadline time.Time // the current write deadline
}

// extend sets the deadline to twice the timeout from now if less than the timeout is left.
func (w *progressWriter) extend() {
	if now := time.Now(); w.deadline.Sub(now) < w.timeout {
		w.deadline = now.Add(2 * w.timeout)
		_ = w.rc.SetWriteDeadline(w.deadline)
	}
}

// written removes the deadline after a write, if perWrite is set.
func (w *progressWriter) written() {
	if w.perWrite {
		w.deadline = time.Time{}
		_ = w.rc.SetWriteDeadline(w.deadline)
	}
}

// Write implements [http.ResponseWriter].
func (w *progressWriter) Write(p []byte) (int, error) {
	w.extend()
	defer w.written()
	return w.ResponseWriter.Write(p)
}

// FlushError is called by [http.ResponseController.Flush].
func (w *progressWriter) FlushError() error {
	w.extend()
	defer w.written()
	return w.rc.Flush()
}

// Unwrap gives an [http.ResponseController] access to the other methods of the writer.
func (w *progressWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
