package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

const (
	heartbeat   = 15 * time.Second
	readerGrace = 30 * time.Second // a client that takes nothing for so long is gone
)

// stream writes events to a client.
type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

func newStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // of a proxy
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, rc: http.NewResponseController(w)}
}

// add adds an event to what is sent next. It has a name, a place that a client
// can go on from, and data; each of them may be empty.
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

// beat adds a comment, which shows both sides that the other is there, and the
// place that has been reached, which may be far behind events that were left out.
func (s *stream) beat(id string) {
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	s.buf.WriteString(": \n\n")
}

// flush sends what was added.
func (s *stream) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(readerGrace)) // a recorder has none
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	s.buf.Reset()
	return s.rc.Flush()
}
