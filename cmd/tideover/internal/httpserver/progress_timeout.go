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

// ProgressTimeout is for handlers with long uploads and streams. It limits the time of each
// read and write instead of the time of the whole request: a client that makes no progress for
// the timeout, or at most twice as long, is disconnected.
func ProgressTimeout(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := &progressWriter{ResponseWriter: w, rc: http.NewResponseController(w), timeout: timeout, perWrite: r.ProtoMajor > 1}
		if r.Body != nil && r.Body != http.NoBody {
			body := &progressBody{ReadCloser: r.Body, rc: own.rc, timeout: timeout}
			r.Body = body
			defer body.release()
			if !own.perWrite {
				body.extend() // net/http reads some of a body that the handler leaves unread
			}
		}
		if !own.perWrite {
			own.extend() // replaces the deadline of the request before on this connection
		}
		next.ServeHTTP(own, r)
	})
}

// progressBody is a request body with a deadline for each read.
type progressBody struct {
	io.ReadCloser
	timeout time.Duration

	mu       sync.Mutex
	rc       *http.ResponseController // nil once the request is answered
	deadline time.Time                // as it was set last
}

// extend moves the deadline on if less than the timeout is left. Setting it for every read would
// cost more.
func (b *progressBody) extend() {
	if now := time.Now(); b.deadline.Sub(now) < b.timeout {
		b.setDeadline(now.Add(2 * b.timeout))
	}
}

// setDeadline sets the deadline of reads, unless the request is answered.
func (b *progressBody) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rc != nil {
		b.deadline = t
		_ = b.rc.SetReadDeadline(t) // not all writers have one
	}
}

// release is called when the request is answered. A transport that forwards the body may still
// read it, but the response controller must not be used any more: with HTTP/2, setting a
// deadline would panic.
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
		b.setDeadline(time.Time{}) // the server goes on reading, to notice when the client disconnects
	}
	return n, err
}

// progressWriter is a response with a deadline for each write.
type progressWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	timeout  time.Duration
	perWrite bool      // remove the deadline after each write: HTTP/2 resets a stream whose deadline passes between two writes
	deadline time.Time // as it was set last
}

// extend moves the deadline on if less than the timeout is left.
func (w *progressWriter) extend() {
	if now := time.Now(); w.deadline.Sub(now) < w.timeout {
		w.deadline = now.Add(2 * w.timeout)
		_ = w.rc.SetWriteDeadline(w.deadline)
	}
}

// written is called after each write.
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
