package tracing

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Span is a span in the JSON form of OTLP.
type Span struct {
	TraceID    string  `json:"traceId"`
	SpanID     string  `json:"spanId"`
	ParentID   string  `json:"parentSpanId,omitempty"`
	Name       string  `json:"name"`
	Kind       int     `json:"kind"`
	Start      nanos   `json:"startTimeUnixNano"`
	End        nanos   `json:"endTimeUnixNano"`
	Attributes []Attr  `json:"attributes,omitempty"`
	Events     []Event `json:"events,omitempty"`
	Status     *Status `json:"status,omitempty"`
}

// Kinds of spans, as OTLP numbers them.
const (
	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
)

// Attr is an attribute of a span or of an event.
type Attr struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

// value is a string or an integer. OTLP encodes integers as strings, too.
type value struct {
	Text   *string `json:"stringValue,omitempty"`
	Number *string `json:"intValue,omitempty"`
}

func text(key, s string) Attr { return Attr{key, value{Text: &s}} }

func number(key string, n int64) Attr {
	s := strconv.FormatInt(n, 10)
	return Attr{key, value{Number: &s}}
}

// Event is an event in a span, such as a wait.
type Event struct {
	Time       nanos  `json:"timeUnixNano"`
	Name       string `json:"name"`
	Attributes []Attr `json:"attributes,omitempty"`
}

// Status is the status of a span that failed. Other spans have none.
type Status struct {
	Code    int    `json:"code"` // 2 means error
	Message string `json:"message,omitempty"`
}

func failed(err error) *Status {
	s := &Status{Code: 2}
	if err != nil {
		s.Message = err.Error()
	}
	return s
}

// nanos is a time that is encoded as OTLP requires: in nanoseconds since 1970, as a string.
type nanos time.Time

// MarshalText implements [encoding.TextMarshaler].
func (n nanos) MarshalText() ([]byte, error) {
	return strconv.AppendInt(nil, time.Time(n).UnixNano(), 10), nil
}

// id returns an id of the given number of bytes, in hexadecimal. It is a hash of the parts.
func id(bytes int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(append([]byte(p), 0))
	}
	return hex.EncodeToString(h.Sum(nil)[:bytes])
}
