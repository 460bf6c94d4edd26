package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tideover/tideover/retryhttp"
)

// eventBody is an event stream that is passed on. If it goes silent for too long between
// two events, an event tells the client why the stream ends: a connection that is aborted
// says nothing to it.
type eventBody struct {
	io.ReadCloser
	provider string

	line, blank bool // the last byte ended a line, and that line was empty
	pending     []byte
	err         error // after what is pending
}

// Read implements [io.Reader].
func (b *eventBody) Read(p []byte) (int, error) {
	if b.err != nil {
		n := copy(p, b.pending)
		if b.pending = b.pending[n:]; n > 0 {
			return n, nil
		}
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[max(0, n-4):n] { // the longest end of an event is CR LF CR LF
		switch {
		case c == '\r':
		case c == '\n':
			b.blank, b.line = b.line, true
		default:
			b.blank, b.line = false, false
		}
	}
	silence, ok := errors.AsType[*retryhttp.SilenceError](err)
	if !ok || !b.blank {
		return n, err
	}
	b.pending, b.err = b.event(silence), err
	return n, nil
}

// event returns the event that tells of a silence, in the form that the SDKs of all
// providers take for an error.
func (b *eventBody) event(e *retryhttp.SilenceError) []byte {
	type problem struct {
		Type     string `json:"type"`
		Code     string `json:"code"`
		Message  string `json:"message"`
		Provider string `json:"provider"`
	}
	text, _ := json.Marshal(struct {
		Type  string  `json:"type"`
		Error problem `json:"error"`
	}{"error", problem{"tideover_error", codeTimeout, fmt.Sprintf("the stream was silent for %v: raise stream.idle if that is too short", e.For), b.provider}})
	return fmt.Appendf(nil, "event: error\ndata: %s\n\n", text)
}
