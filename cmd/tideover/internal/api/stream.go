package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// readerTimeout is how long a client may receive nothing before its stream is ended.
const readerTimeout = 30 * time.Second

// stream writes events to a client.
type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

func newStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would collect what is sent
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, rc: http.NewResponseController(w)}
}

// add adds an event to what is sent next: its name, its id, from which a client can continue, and
// its data. Name and id may be empty.
func (s *stream) add(name, id string, v any) error {
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	if name != "" {
		s.buf.WriteString("event: " + name + "\n")
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.buf.WriteString("data: ")
	s.buf.Write(text) // has no line breaks
	s.buf.WriteString("\n\n")
	return nil
}

// beat adds a comment, which shows both sides that the connection works, and the id that was
// reached, which may be far beyond the last event that was sent.
func (s *stream) beat(id string) {
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	s.buf.WriteString(": \n\n")
}

// flush sends what was added.
func (s *stream) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(readerTimeout)) // not all writers have one
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	s.buf.Reset()
	return s.rc.Flush()
}
