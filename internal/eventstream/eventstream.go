// Package eventstream sends server-sent events.
package eventstream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"time"
)

// Stream sends server-sent events to a client.
type Stream struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	buf     bytes.Buffer
	err     error // the first error of AddJSON
}

// New returns a stream that is the response to a request. If the client takes longer
// than the timeout to receive a write, the stream is closed.
func New(w http.ResponseWriter, timeout time.Duration) *Stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer the events
	w.WriteHeader(http.StatusOK)
	return &Stream{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Add adds an event to the next write. A client that reconnects sends the id of the last event
// that it received, and gets the events after it. name and id may be empty.
func (s *Stream) Add(name, id string, data []byte) {
	s.field("id", id)
	s.field("event", name)
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		s.buf.WriteString("data: ")
		s.buf.Write(line)
		s.buf.WriteByte('\n')
	}
	s.buf.WriteByte('\n')
}

// AddJSON adds an event with v as its data, encoded as JSON. If v can't be encoded, the next Flush
// returns the error.
func (s *Stream) AddJSON(name, id string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.err = cmp.Or(s.err, err)
		return
	}
	s.Add(name, id, data)
}

// Beat adds a heartbeat to the next write: an empty comment, which shows that the connection works.
// id is the current position in the stream, or empty. If the client does not get all events, it is
// far beyond the last event that was sent.
func (s *Stream) Beat(id string) {
	s.field("id", id)
	s.buf.WriteString(": \n\n")
}

func (s *Stream) field(name, value string) {
	if value != "" {
		s.buf.WriteString(name + ": " + value + "\n")
	}
}

// Flush writes everything that was added since the last flush.
func (s *Stream) Flush() error {
	if s.err != nil {
		return s.err
	}
	// This deadline replaces that of the whole response. Not all writers support deadlines.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	s.buf.Reset()
	if s.buf.Cap() > maxKeptBuffer {
		s.buf = bytes.Buffer{}
	}
	return s.rc.Flush()
}

// maxKeptBuffer is the largest buffer in bytes that a stream keeps for the next write.
const maxKeptBuffer = 64 << 10
