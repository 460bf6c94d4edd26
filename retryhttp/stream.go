package retryhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/tideover/tideover/retry"
)

// Streams sets how the transport treats answers that take long. See [WithStreams].
type Streams struct {
	// Hold is how long an event stream is held back until its first content, so
	// that a stream that begins with an error can be retried; 0 means not at all. The
	// caller gets everything unchanged, after the first event with content or after
	// this time.
	//
	// If the stream is silent after this time, it is held further until it sends
	// something, if the request is not a GET, may be processed twice, and has an attempt
	// left. After a silence of Idle it is a failure.
	Hold time.Duration

	// Idle is the longest silence within the body of any answer. After it, reading the
	// body fails with a [*SilenceError]. 0 means no limit.
	Idle time.Duration

	// Sized is the same for an answer with a known length, which is not a stream. 0 means
	// Idle.
	Sized time.Duration
}

// prelude are the events that APIs send before they know whether there will be
// content.
var prelude = map[string]bool{
	"ping": true, "message_start": true, // Anthropic
	"response.created": true, "response.in_progress": true, "response.queued": true, // OpenAI
}

// eventError has the status that corresponds to each type of error that providers send
// in a stream.
var eventError = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"rate_limit_exceeded":   http.StatusTooManyRequests,
	"insufficient_quota":    http.StatusTooManyRequests,
	"overloaded_error":      statusOverloaded,
	"timeout_error":         http.StatusGatewayTimeout,
}

// opening holds a stream until its first content or error. It returns the error event
// with which the stream begins as e. If reading fails before that and the request may be
// repeated, it returns err.
func (x *exchange) opening(resp *http.Response) (e *StatusError, err error) {
	patience := time.Duration(0)
	if x.mayStall() {
		patience = x.t.streams.Idle
	}
	p, silent := peek(resp.Body, x.t.streams.Hold, patience, func(b []byte) bool { return openingOf(b).known })
	resp.Body = p
	head, err := p.result()
	o := openingOf(head)
	switch {
	case silent:
		return nil, &streamStalledError{&SilenceError{patience}}
	case o.problem != nil:
		return x.eventFailure(o), nil
	case o.known || err == nil:
		return nil, nil
	case err == io.EOF && !o.begun: //nolint:errorlint // the end of a body is never wrapped
		return nil, nil // a stream without any event
	case err == io.EOF: //nolint:errorlint // the same
		err = io.ErrUnexpectedEOF
	}
	broken := &streamBrokenError{err}
	if x.forbidden(false) == nil {
		return nil, broken
	}
	// The server may have done the work. The caller gets the part that arrived and then
	// the error. Without that part, the error would look like a request without an
	// answer, and clients repeat such requests by themselves.
	p.breakOff(broken)
	return nil, nil
}

// eventFailure returns the failure for an error event, or nil if no retry would change
// it.
func (x *exchange) eventFailure(o opening) *StatusError {
	e := &StatusError{Code: o.code, Event: o.kind}
	v := x.t.ofStatus(o.code)
	if v == answer {
		return nil
	}
	if e.Quota = o.problem.quota(); e.Quota != "" {
		v = permanent
	}
	e.class = v.class()
	e.After, _ = o.problem.retryDelay()
	if e.class < retry.ClassPermanent {
		e.NotRetried = x.forbidden(v == throttled || x.t.answered)
	}
	return e
}

// mayStall reports whether a stream that is silent before its first content may be
// requested again: the request may be processed twice, and another attempt is left. The
// stream of a GET may be a feed of news, which can have no content for long.
func (x *exchange) mayStall() bool {
	return x.req.Method != "" && x.req.Method != http.MethodGet && x.forbidden(false) == nil && !x.last()
}

// streamStalledError is the failure of a stream that was silent before its first content.
type streamStalledError struct{ *SilenceError }

func (e *streamStalledError) Error() string {
	return "the stream stalled before its first content: silent for " + e.For.String()
}
func (e *streamStalledError) Unwrap() error { return e.SilenceError }

// streamBrokenError is the failure of a stream that broke off before its first content.
type streamBrokenError struct{ error }

func (e *streamBrokenError) Error() string {
	return "the stream broke off before its first content: " + e.error.Error()
}
func (e *streamBrokenError) Unwrap() error { return e.error }

// opening describes how a stream begins.
type opening struct {
	begun   bool     // there was an event without content
	known   bool     // there is content or an error
	problem *problem // details of an error event; nil if there is none
	kind    string   // type of the error event
	code    int      // the status that corresponds to the error event
}

// openingOf reads the beginning of an event stream.
func openingOf(head []byte) (o opening) {
	for len(head) > 0 {
		event, rest, whole := cutEvent(head)
		if !whole {
			break
		}
		head = rest
		name, data := fieldsOf(event)
		if len(data) == 0 {
			continue // a comment to keep the connection alive
		}
		var e streamEvent
		_ = json.Unmarshal(data, &e) // data that is not JSON is content
		kind := cmp.Or(e.Type, name)
		switch {
		case kind == "error" || kind == "response.failed" || name == "error" || e.failed():
			return errorEvent(kind, data)
		case !prelude[kind] && !e.empty():
			return opening{known: true}
		}
		o.begun = true
	}
	return o
}

// streamEvent has the fields that show whether an event is content.
type streamEvent struct {
	Type    string          `json:"type"`
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Delta  map[string]json.RawMessage `json:"delta"`
		Finish json.RawMessage            `json:"finish_reason"`
	} `json:"choices"`
}

// failed reports whether the event is an error: its field error is a text or an object
// that is not empty.
func (e *streamEvent) failed() bool {
	switch text := string(bytes.Join(bytes.Fields(e.Error), nil)); text {
	case "", "null", `""`, "{}":
		return false
	default:
		return text[0] == '{' || text[0] == '"'
	}
}

// empty reports whether the event is a chunk of a chat completion without content. The
// first chunk has only the role.
func (e *streamEvent) empty() bool {
	if e.Object != "chat.completion.chunk" {
		return false
	}
	for _, c := range e.Choices {
		for name, value := range c.Delta {
			if v := string(value); name != "role" && v != "null" && v != `""` {
				return false
			}
		}
		if f := string(c.Finish); f != "" && f != "null" {
			return false
		}
	}
	return true
}

// errorEvent reads an event that is an error.
func errorEvent(kind string, data []byte) opening {
	var outer struct {
		Response json.RawMessage `json:"response"`
	}
	if json.Unmarshal(data, &outer) == nil && len(outer.Response) > 0 {
		data = outer.Response
	}
	p := parseProblem(data)
	if kind != "response.failed" {
		kind = "error" // not the server's own word, which could be anything and would be in logs
	}
	o := opening{known: true, problem: &p, kind: kind, code: http.StatusInternalServerError}
	for _, c := range p.codes {
		if code := eventError[c]; code != 0 {
			o.kind, o.code = c, code
			return o
		}
	}
	if p.status >= http.StatusBadRequest && p.status < 600 {
		o.code = p.status
	}
	return o
}

// cutEvent returns the first event and the bytes after it. whole is false if the event
// is incomplete. Lines may end with CR, LF or both.
func cutEvent(b []byte) (event, rest []byte, whole bool) {
	for i := 0; i < len(b); {
		line := bytes.IndexAny(b[i:], "\r\n")
		if line < 0 {
			break
		}
		next := i + line + 1
		if b[next-1] == '\r' && next < len(b) && b[next] == '\n' {
			next++
		}
		if line == 0 {
			return b[:i], b[next:], true
		}
		i = next
	}
	return nil, b, false
}

// fieldsOf returns the name and the data of an event.
func fieldsOf(event []byte) (name string, data []byte) {
	for _, line := range bytes.FieldsFunc(event, func(r rune) bool { return r == '\r' || r == '\n' }) {
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	return name, data
}
