package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
)

// What went wrong, for programs. Codes are only ever added.
const (
	CodeBadRequest   = "bad-request"
	CodeUnauthorized = "unauthorized"
	CodeForbidden    = "forbidden"
	CodeNotFound     = "not-found"
	CodeMethod       = "method-not-allowed"
	CodeAmbiguous    = "ambiguous"
	CodeState        = "not-possible-now"
	CodeConflict     = "key-taken"
	CodeDead         = "run-dead"
	CodeCanceled     = "run-canceled"
	CodeReplaced     = "run-replaced"
	CodeTooLarge     = "too-large"
	CodeMediaType    = "media-type"
	CodeHost         = "unknown-host"
	CodeNoEngine     = "no-engine"
	CodeBusy         = "busy"
	CodeClosed       = "closed"
	CodeAway         = "away" // a shard that has no owner at the moment
	CodeInternal     = "internal"
)

// Problem is the answer to a request that was not done. It is an error, the one
// that the methods of [Client] return for it.
type Problem struct { //nolint:errname // what RFC 9457 calls it
	Status     int      `json:"status"`
	Code       string   `json:"code"`
	Message    string   `json:"error"`
	Field      string   `json:"field,omitempty"`      // of the body or the query
	Hint       string   `json:"hint,omitempty"`       // what to do about it
	Candidates []string `json:"candidates,omitempty"` // runs that an ambiguous name may stand for
	Outcome    *Outcome `json:"run,omitempty"`        // of a run that did not succeed
}

// Error says everything in a line.
func (p *Problem) Error() string {
	text := p.Message
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	return text
}

// bad is a mistake in a field of the request.
func bad(field, format string, args ...any) *Problem {
	return &Problem{Status: http.StatusBadRequest, Code: CodeBadRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}

// problem returns how an error is told.
func problem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if p, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Problem{Status: http.StatusRequestEntityTooLarge, Code: CodeTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", p.Limit)}
	}
	p := &Problem{Status: http.StatusInternalServerError, Code: CodeInternal, Message: err.Error()}
	switch {
	case errors.Is(err, engine.ErrNotFound), errors.Is(err, session.ErrUnknown):
		p.Status, p.Code = http.StatusNotFound, CodeNotFound
	case errors.Is(err, engine.ErrState):
		p.Status, p.Code = http.StatusConflict, CodeState
	case errors.Is(err, engine.ErrConflict):
		p.Status, p.Code = http.StatusConflict, CodeConflict
	case errors.Is(err, engine.ErrInput):
		p.Status, p.Code, p.Field = http.StatusBadRequest, CodeBadRequest, "input"
	case errors.Is(err, engine.ErrTooLarge):
		p.Status, p.Code = http.StatusRequestEntityTooLarge, CodeTooLarge
	case errors.Is(err, engine.ErrAway):
		p.Status, p.Code = http.StatusServiceUnavailable, CodeAway
	case errors.Is(err, engine.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p.Status, p.Code = http.StatusServiceUnavailable, CodeClosed
	}
	return p
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	text, err := json.Marshal(p)
	if err != nil {
		text = []byte(`{}`) // of strings; can't be
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n'))
}
