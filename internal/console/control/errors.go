package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tideover/tideover/engine"
)

// Code is the reason why an operation failed, for programs.
type Code string

// The codes of errors. They are part of the API: a code is never removed or renamed.
const (
	CodeBadRequest   Code = "bad-request"
	CodeUnauthorized Code = "unauthorized"
	CodeForbidden    Code = "forbidden"
	CodeNotFound     Code = "not-found"
	CodeMethod       Code = "method-not-allowed"
	CodeAmbiguous    Code = "ambiguous"
	CodeState        Code = "not-possible-now" // the state of the run or the session forbids it
	CodeConflict     Code = "key-taken"        // a run of another workflow has the key
	CodeDead         Code = "run-dead"
	CodeCanceled     Code = "run-canceled"
	CodeReplaced     Code = "run-replaced" // another run took its place
	CodeTooLarge     Code = "too-large"
	CodeTooMany      Code = "too-many-signals" // the run has too many signals that it has not waited for
	CodeUsed         Code = "used"             // the callback URL was used already
	CodeExpired      Code = "expired"          // of a callback URL
	CodeMediaType    Code = "media-type"
	CodeHost         Code = "unknown-host" // of the Host header
	CodeNoEngine     Code = "no-engine"    // the server is a gateway alone
	CodeBusy         Code = "busy"         // too many event streams are open, or a rolling deploy is not finished
	CodeClosed       Code = "closed"       // the server shuts down, or the request was canceled or timed out
	CodeAway         Code = "away"         // a shard has no owner at the moment
	CodeInternal     Code = "internal"
)

// statuses has the HTTP status of each code. Codes that are not in it have the status 500.
var statuses = map[Code]int{
	CodeBadRequest: http.StatusBadRequest, CodeUnauthorized: http.StatusUnauthorized, CodeForbidden: http.StatusForbidden,
	CodeNotFound: http.StatusNotFound, CodeNoEngine: http.StatusNotFound, CodeMethod: http.StatusMethodNotAllowed,
	CodeAmbiguous: http.StatusConflict, CodeState: http.StatusConflict, CodeConflict: http.StatusConflict,
	CodeDead: http.StatusConflict, CodeCanceled: http.StatusConflict, CodeReplaced: http.StatusConflict,
	CodeTooLarge: http.StatusRequestEntityTooLarge, CodeMediaType: http.StatusUnsupportedMediaType,
	CodeHost: http.StatusMisdirectedRequest, CodeTooMany: http.StatusTooManyRequests, CodeUsed: http.StatusConflict, CodeExpired: http.StatusGone,
	CodeBusy: http.StatusServiceUnavailable, CodeClosed: http.StatusServiceUnavailable,
	CodeAway: http.StatusServiceUnavailable,
}

// HTTPStatus returns the HTTP status of a response with the code.
func (c Code) HTTPStatus() int { return cmp.Or(statuses[c], http.StatusInternalServerError) }

// causes maps the errors of operations to codes. [AsError] uses the first that matches.
var causes = []struct {
	err   error
	code  Code
	field string // field of the request that caused the error; may be empty
}{
	{engine.ErrNotFound, CodeNotFound, ""},
	{engine.ErrNoSchedule, CodeNotFound, ""},
	{engine.ErrState, CodeState, ""},
	{engine.ErrConflict, CodeConflict, ""},
	{engine.ErrInput, CodeBadRequest, "input"},
	{engine.ErrTooLarge, CodeTooLarge, ""},
	{engine.ErrTooManySignals, CodeTooMany, ""},
	{engine.ErrSignalUsed, CodeUsed, ""},
	{engine.ErrMayNotAnswer, CodeForbidden, ""},
	{engine.ErrNotAChoice, CodeBadRequest, "choice"},
	{engine.ErrOldMember, CodeBusy, ""},
	{engine.ErrAway, CodeAway, ""},
	{engine.ErrClosed, CodeClosed, ""},
	{engine.ErrNotStored, CodeClosed, ""},
	{context.Canceled, CodeClosed, ""},
	{context.DeadlineExceeded, CodeClosed, ""}, // another process did not answer in time
}

// storeTimeout is how long a request of a client waits while the log can't be written.
const storeTimeout = 10 * time.Second

// LimitStoring returns a context for the request of a client: a change that can't be stored, such as on
// a full disk, fails soon and with the reason.
func LimitStoring(ctx context.Context) context.Context {
	return engine.StoreWithin(ctx, storeTimeout)
}

// Error is the error of an operation. Its JSON form is the body of the API's response; package
// client decodes that body into an Error again.
type Error struct {
	Status     int      `json:"status"` // HTTP status of the response
	Code       Code     `json:"code"`
	Message    string   `json:"error"`
	Field      string   `json:"field,omitempty"`      // field of the request that is wrong
	Hint       string   `json:"hint,omitempty"`       // what to do
	Candidates []string `json:"candidates,omitempty"` // ids of the runs that match an ambiguous name
	Outcome    *Outcome `json:"run,omitempty"`        // the run whose result was requested and that did not succeed
	Err        error    `json:"-"`                    // the cause; may be nil
}

// NewError returns an error with the HTTP status of the code. hint says what to do, and may be
// empty.
func NewError(code Code, message, hint string) *Error {
	return &Error{Status: code.HTTPStatus(), Code: code, Message: message, Hint: hint}
}

// Invalid returns an error with [CodeBadRequest] about a field of the request.
func Invalid(field, format string, args ...any) *Error {
	e := NewError(CodeBadRequest, fmt.Sprintf(format, args...), "")
	e.Field = field
	return e
}

// WithHint sets the hint of the error, and returns the error.
func (e *Error) WithHint(hint string) *Error {
	e.Hint = hint
	return e
}

// AsError converts an error to an [*Error]. If err is or wraps an [*Error], it returns that one.
// Otherwise it returns a new one with the code of the cause, or [CodeInternal] if the cause is
// unknown.
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

// Error returns the field, the message and the hint in one line.
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
