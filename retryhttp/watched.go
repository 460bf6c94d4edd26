package retryhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

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
