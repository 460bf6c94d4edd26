package server

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// silence is how long a caller of the gateway may send nothing of its body, or
// take nothing of its answer, before its connection is given up.
const silence = time.Minute

// patient is for a handler whose uploads and streams may last: not the whole
// request has a limit, but each single read and write. Who does nothing for long is
// gone.
func patient(next http.Handler, silence time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := &patientWriter{ResponseWriter: w, rc: http.NewResponseController(w), silence: silence, alone: r.ProtoMajor > 1}
		if r.Body != nil && r.Body != http.NoBody {
			body := &patientBody{ReadCloser: r.Body, rc: own.rc, silence: silence}
			r.Body = body
			defer body.release()
			if !own.alone {
				body.begin() // if nobody wants it, the server reads some of it before it answers
			}
		}
		if !own.alone {
			own.begin() // whatever request was there before on this connection
		}
		next.ServeHTTP(own, r)
	})
}

// patientBody is a request's body of which every piece has its time.
type patientBody struct {
	io.ReadCloser
	silence time.Duration

	mu    sync.Mutex
	rc    *http.ResponseController // nil once the request is answered
	until time.Time                // of the deadline that is set
}

// begin gives the next read its time, and those that follow it soon.
func (b *patientBody) begin() {
	if now := time.Now(); b.until.Sub(now) < b.silence {
		b.setDeadline(now.Add(2 * b.silence)) // a writer without deadlines has none that end
	}
}

// setDeadline sets the deadline of reads, unless the request is answered.
func (b *patientBody) setDeadline(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rc != nil {
		b.until = until
		_ = b.rc.SetReadDeadline(until)
	}
}

// release is called when the request is answered. A transport that sends the body on may
// still read it, but nothing of the answer may be used any more: with HTTP/2, setting a
// deadline would panic.
func (b *patientBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rc = nil
}

// Read implements [io.Reader].
func (b *patientBody) Read(p []byte) (int, error) {
	b.begin()
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.setDeadline(time.Time{}) // the server goes on reading, to know when the caller leaves
	}
	return n, err
}

// patientWriter is an answer of which every piece has its time.
type patientWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	silence time.Duration
	alone   bool      // a deadline that passes between two writes does harm: HTTP/2 resets the stream
	until   time.Time // of the deadline that is set
}

// begin gives the next write its time, and those that follow it soon.
func (w *patientWriter) begin() {
	if now := time.Now(); w.until.Sub(now) < w.silence {
		w.until = now.Add(2 * w.silence)
		_ = w.rc.SetWriteDeadline(w.until)
	}
}

// end is called when the write is over.
func (w *patientWriter) end() {
	if w.alone {
		w.until = time.Time{}
		_ = w.rc.SetWriteDeadline(w.until)
	}
}

// Write implements [http.ResponseWriter].
func (w *patientWriter) Write(p []byte) (int, error) {
	w.begin()
	defer w.end()
	return w.ResponseWriter.Write(p)
}

// FlushError is what an [http.ResponseController] calls to flush.
func (w *patientWriter) FlushError() error {
	w.begin()
	defer w.end()
	return w.rc.Flush()
}

// Unwrap lets an [http.ResponseController] find what else the writer can do.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
