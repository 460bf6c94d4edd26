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

// Streams says how answers are treated that take their time. See [WithStreams].
type Streams struct {
	// Hold is how long an event stream is held back until its first content, so
	// that one which begins with an error can be retried; 0 means not at all. What
	// comes first is passed on unchanged when the time is up, and with the first
	// event that is content at once.
	//
	// A stream that is silent then is held on until it says something, if its request is no
	// GET, may be processed twice, and has an attempt left. After a silence of Idle it is a
	// failure.
	Hold time.Duration

	// Idle is the longest silence within the body of any answer; reading it then
	// fails with a [*SilenceError]. 0 means any.
	Idle time.Duration

	// Sized is the same for an answer whose length is known, which is no stream. 0 means
	// Idle.
	Sized time.Duration
}

// prelude are the events that APIs send before they know whether there will be
// content.
var prelude = map[string]bool{
	"ping": true, "message_start": true, // Anthropic
	"response.created": true, "response.in_progress": true, "response.queued": true, // OpenAI
}

// eventError is the code for each type of error that providers send in a stream
// instead of a status.
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

// opening holds a stream until it is clear how it begins. It returns the failure
// that it begins with; err is how reading it failed before that, if the request may be
// repeated.
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
		return nil, nil // a stream of nothing
	case err == io.EOF: //nolint:errorlint // the same
		err = io.ErrUnexpectedEOF
	}
	broken := &streamBrokenError{err}
	if x.forbidden(false) == nil {
		return nil, broken
	}
	// The server may have done the work. The caller gets the answer as far as it came:
	// an error instead would look like a request that was not answered, which clients
	// send again by themselves.
	p.breakOff(broken)
	return nil, nil
}

// eventFailure returns the failure that an error event is, nil if no retry would
// change it.
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

// mayStall reports whether a stream that is silent before its first content is waited for,
// to be requested again: the request may be processed twice, and another attempt is left.
// That of a GET may be one of news, which has no content for long.
func (x *exchange) mayStall() bool {
	return x.req.Method != "" && x.req.Method != http.MethodGet && x.forbidden(false) == nil && !x.last()
}

// streamStalledError is a stream that went silent before there was any content.
type streamStalledError struct{ *SilenceError }

func (e *streamStalledError) Error() string {
	return "the stream stalled before its first content: silent for " + e.For.String()
}
func (e *streamStalledError) Unwrap() error { return e.SilenceError }

// streamBrokenError is a stream that broke off before there was any content.
type streamBrokenError struct{ error }

func (e *streamBrokenError) Error() string {
	return "the stream broke off before its first content: " + e.error.Error()
}
func (e *streamBrokenError) Unwrap() error { return e.error }

// opening is what is known of how a stream begins.
type opening struct {
	begun   bool     // there was an event before that
	known   bool     // there is content or an error
	problem *problem // of an error event; nil means none
	kind    string   // what it calls itself
	code    int      // the status that it stands for
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
			continue // a comment, which keeps the connection alive
		}
		var e streamEvent
		_ = json.Unmarshal(data, &e) // what is no JSON is content
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

// streamEvent is what tells whether an event is content.
type streamEvent struct {
	Type    string          `json:"type"`
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Delta  map[string]json.RawMessage `json:"delta"`
		Finish json.RawMessage            `json:"finish_reason"`
	} `json:"choices"`
}

// failed reports whether the event is an error: an object with something in it, or
// a text.
func (e *streamEvent) failed() bool {
	switch text := string(bytes.Join(bytes.Fields(e.Error), nil)); text {
	case "", "null", `""`, "{}":
		return false
	default:
		return text[0] == '{' || text[0] == '"'
	}
}

// empty reports whether it is a piece of a chat completion with nothing in it, as
// the first one is: it says who speaks.
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
		kind = "error" // the server's own word could be anything, and would be in logs
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

// cutEvent returns the first event, and what follows it, if it is whole. Lines
// end as they like.
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
