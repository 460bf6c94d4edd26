package tracing

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Span is one of OTLP. Its JSON is the protocol's.
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

// The kinds of spans that are made.
const (
	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
)

// Attr is an attribute.
type Attr struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

// value is a text, or a whole number, which OTLP writes as a text, too.
type value struct {
	Text   *string `json:"stringValue,omitempty"`
	Number *string `json:"intValue,omitempty"`
}

func text(key, s string) Attr { return Attr{key, value{Text: &s}} }

func number(key string, n int64) Attr {
	s := strconv.FormatInt(n, 10)
	return Attr{key, value{Number: &s}}
}

// Event is something that happened during a span.
type Event struct {
	Time       nanos  `json:"timeUnixNano"`
	Name       string `json:"name"`
	Attributes []Attr `json:"attributes,omitempty"`
}

// Status says that a span failed.
type Status struct {
	Code    int    `json:"code"` // 2 is an error
	Message string `json:"message,omitempty"`
}

func failed(err error) *Status {
	s := &Status{Code: 2}
	if err != nil {
		s.Message = err.Error()
	}
	return s
}

// nanos is a time as OTLP writes it.
type nanos time.Time

// MarshalText implements [encoding.TextMarshaler].
func (n nanos) MarshalText() ([]byte, error) {
	return strconv.AppendInt(nil, time.Time(n).UnixNano(), 10), nil
}

// id returns so many bytes that follow from the parts.
func id(bytes int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(append([]byte(p), 0))
	}
	return hex.EncodeToString(h.Sum(nil)[:bytes])
}
