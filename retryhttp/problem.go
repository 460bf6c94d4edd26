package retryhttp

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// quotaCodes are codes that mean that quota or credit is used up, so a retry does not
// help. They are compared with fields that hold codes, never searched for in messages.
var quotaCodes = []string{
	"insufficient_quota",           // OpenAI and compatible APIs
	"billing_hard_limit_reached",   // OpenAI
	"billing_not_active",           // OpenAI
	"exceeded_current_quota_error", // Moonshot
	"insufficient_credits",
	"insufficient_balance",
	"billing_error", // Anthropic
}

// problem has the machine-readable parts of the body of an error.
type problem struct {
	codes  []string
	status int    // a code that is a number, usually a status
	delay  string // RetryInfo.retryDelay
}

// parseProblem reads the JSON body of an error. Any other body gives a zero problem.
func parseProblem(body []byte) (p problem) {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0] // Gemini's streams answer with a list
	}
	var outer struct {
		Error json.RawMessage `json:"error"`
		Code  any             `json:"code"`
		Type  any             `json:"type"`
	}
	if json.Unmarshal(body, &outer) != nil {
		return p
	}
	p.add(outer.Code, outer.Type)
	var inner struct {
		Code    any `json:"code"`
		Type    any `json:"type"`
		Details []struct {
			Type  string `json:"@type"`
			Delay string `json:"retryDelay"`
		} `json:"details"`
	}
	var code any
	_ = json.Unmarshal(outer.Error, &inner) // fields of another type stay empty
	_ = json.Unmarshal(outer.Error, &code)
	p.add(inner.Code, inner.Type, code)
	for _, d := range inner.Details {
		if d.Type == "type.googleapis.com/google.rpc.RetryInfo" {
			p.delay = d.Delay
		}
	}
	return p
}

func (p *problem) add(codes ...any) {
	for _, c := range codes {
		switch c := c.(type) {
		case string:
			p.codes = append(p.codes, c)
		case float64:
			p.status = int(c)
		}
	}
}

// quota returns the code that means that quota or credit is used up, or "".
func (p *problem) quota() string {
	for _, c := range p.codes {
		if slices.Contains(quotaCodes, c) {
			return c
		}
	}
	return ""
}

// retryDelay returns the delay that the body states.
func (p *problem) retryDelay() (time.Duration, bool) {
	d, err := time.ParseDuration(p.delay)
	return max(d, 0), err == nil && d >= 0
}

// Decoder returns a reader of the decoded content of an encoded body.
type Decoder func(io.Reader) (io.Reader, error)

// WithDecoder sets the decoder for an encoding, such as br. The transport uses it to
// read the bodies of failures. gzip and deflate are built in. The caller still gets the
// encoded body.
func WithDecoder(encoding string, decode Decoder) Option {
	return func(s *settings) error {
		if encoding == "" || decode == nil {
			return errors.New("WithDecoder: an encoding and a decoder are required")
		}
		if s.decoders == nil {
			s.decoders = map[string]Decoder{}
		}
		s.decoders[strings.ToLower(encoding)] = decode
		return nil
	}
}

// maxEncodings is the greatest number of encodings of one body that decoded undoes.
const maxEncodings = 2

// decoded returns the decoded beginning of a body, at most peekBytes. For a body that is
// cut off it returns the part that can be decoded, for an unknown encoding nil.
func (s *settings) decoded(h http.Header, head []byte) []byte {
	encodings := strings.Split(strings.Join(h["Content-Encoding"], ","), ",")
	if len(encodings) > maxEncodings {
		return nil
	}
	for i := len(encodings) - 1; i >= 0; i-- { // the last encoding was applied last
		name := strings.ToLower(strings.TrimSpace(encodings[i]))
		if name == "" || name == "identity" {
			continue
		}
		decode := s.decoder(name)
		if decode == nil {
			return nil
		}
		r, err := decode(bytes.NewReader(head))
		if err != nil {
			return nil
		}
		head, _ = io.ReadAll(io.LimitReader(r, peekBytes)) // an error leaves the part that could be decoded
	}
	return head
}

func (s *settings) decoder(name string) Decoder {
	if d := s.decoders[name]; d != nil {
		return d
	}
	switch name {
	case "gzip", "x-gzip":
		return func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	case "deflate":
		return func(r io.Reader) (io.Reader, error) { return inflate(r) }
	}
	return nil
}

// inflate decodes deflate with a zlib header, as the standard requires it, or without
// one, as some servers send it.
func inflate(r io.Reader) (io.Reader, error) {
	all, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	const deflateMethod = 8 // in the low bits of the first of the two header bytes
	if len(all) > 2 && all[0]&0xf == deflateMethod && (int(all[0])<<8+int(all[1]))%31 == 0 {
		all = all[2:]
	}
	return flate.NewReader(bytes.NewReader(all)), nil
}
