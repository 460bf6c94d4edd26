package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
)

// Code says for programs why an operation failed.
type Code string

// The codes. Codes are only ever added.
const (
	CodeBadRequest   Code = "bad-request"
	CodeUnauthorized Code = "unauthorized"
	CodeForbidden    Code = "forbidden"
	CodeNotFound     Code = "not-found"
	CodeMethod       Code = "method-not-allowed"
	CodeAmbiguous    Code = "ambiguous"
	CodeState        Code = "not-possible-now"
	CodeConflict     Code = "key-taken"
	CodeDead         Code = "run-dead"
	CodeCanceled     Code = "run-canceled"
	CodeReplaced     Code = "run-replaced"
	CodeTooLarge     Code = "too-large"
	CodeMediaType    Code = "media-type"
	CodeHost         Code = "unknown-host"
	CodeNoEngine     Code = "no-engine"
	CodeBusy         Code = "busy"
	CodeClosed       Code = "closed"
	CodeAway         Code = "away" // a shard has no owner at the moment
	CodeInternal     Code = "internal"
)

// HTTPStatus returns the status with which a failure is answered over HTTP.
func (c Code) HTTPStatus() int {
	switch c {
	case CodeBadRequest:
		return http.StatusBadRequest
	case CodeUnauthorized:
		return http.StatusUnauthorized
	case CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound, CodeNoEngine:
		return http.StatusNotFound
	case CodeMethod:
		return http.StatusMethodNotAllowed
	case CodeAmbiguous, CodeState, CodeConflict, CodeDead, CodeCanceled, CodeReplaced:
		return http.StatusConflict
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeMediaType:
		return http.StatusUnsupportedMediaType
	case CodeHost:
		return http.StatusMisdirectedRequest
	case CodeBusy, CodeClosed, CodeAway:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// causes has the code of each error that an operation may return. The first match counts.
var causes = []struct {
	err   error
	code  Code
	field string // that the error is about
}{
	{engine.ErrNotFound, CodeNotFound, ""},
	{session.ErrUnknown, CodeNotFound, ""},
	{engine.ErrState, CodeState, ""},
	{engine.ErrConflict, CodeConflict, ""},
	{engine.ErrInput, CodeBadRequest, "input"},
	{engine.ErrTooLarge, CodeTooLarge, ""},
	{engine.ErrAway, CodeAway, ""},
	{engine.ErrClosed, CodeClosed, ""},
	{context.Canceled, CodeClosed, ""},
	{context.DeadlineExceeded, CodeClosed, ""}, // another process did not answer in time
}

// Error is why an operation failed. Its JSON form is the body of the API's response, and the
// client returns it as it was received.
type Error struct {
	Status     int      `json:"status"` // of HTTP
	Code       Code     `json:"code"`
	Message    string   `json:"error"`
	Field      string   `json:"field,omitempty"`      // of the request
	Hint       string   `json:"hint,omitempty"`       // what to do
	Candidates []string `json:"candidates,omitempty"` // runs that an ambiguous name may mean
	Outcome    *Outcome `json:"run,omitempty"`        // of a run that did not succeed
	Err        error    `json:"-"`                    // the cause; may be nil
}

// NewError returns an error with the status of its code.
func NewError(code Code, message, hint string) *Error {
	return &Error{Status: code.HTTPStatus(), Code: code, Message: message, Hint: hint}
}

// Invalid returns an error about a field of the request.
func Invalid(field, format string, args ...any) *Error {
	e := NewError(CodeBadRequest, fmt.Sprintf(format, args...), "")
	e.Field = field
	return e
}

// WithHint sets what to do, and returns the error.
func (e *Error) WithHint(hint string) *Error {
	e.Hint = hint
	return e
}

// AsError returns the error as an [*Error]: itself, the one that it wraps, or one with the code
// of its cause.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return NewError(CodeTooLarge, fmt.Sprintf("the body has more than %d bytes", e.Limit), "")
	}
	e := NewError(CodeInternal, err.Error(), "")
	for _, c := range causes {
		if errors.Is(err, c.err) {
			e = NewError(c.code, err.Error(), "")
			e.Field = c.field
			break
		}
	}
	e.Err = err
	return e
}

// Error returns field, message and hint in one line.
func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
