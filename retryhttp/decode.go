package retryhttp

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Decoder returns what reads the content of an encoded body.
type Decoder func(io.Reader) (io.Reader, error)

// WithDecoder reads the bodies of failures that are encoded in this way, such as br, to
// find out what they say. gzip and deflate need none. Bodies are passed on as they came.
func WithDecoder(encoding string, decode Decoder) Option {
	return func(s *settings) error {
		if encoding == "" || decode == nil {
			return errors.New("WithDecoder: no encoding, or no decoder")
		}
		if s.decoders == nil {
			s.decoders = map[string]Decoder{}
		}
		s.decoders[strings.ToLower(encoding)] = decode
		return nil
	}
}

// maxEncodings is how many encodings of one body are undone.
const maxEncodings = 2

// decoded returns the beginning of a body without its encodings, peekBytes at most. A body
// that is cut, or in an encoding that is not known, says what could be read of it.
func (s *settings) decoded(h http.Header, head []byte) []byte {
	encodings := strings.Split(strings.Join(h["Content-Encoding"], ","), ",")
	if len(encodings) > maxEncodings {
		return nil
	}
	for i := len(encodings) - 1; i >= 0; i-- { // the last one was applied last
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
		head, _ = io.ReadAll(io.LimitReader(r, peekBytes)) // as much as could be read
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

// inflate reads deflate with its zlib wrapper, as the standard wants it, or without, as
// some servers send it.
func inflate(r io.Reader) (io.Reader, error) {
	all, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	const deflateMethod = 8 // in the low bits of the first of the two bytes of the wrapper
	if len(all) > 2 && all[0]&0xf == deflateMethod && (int(all[0])<<8+int(all[1]))%31 == 0 {
		all = all[2:]
	}
	return flate.NewReader(bytes.NewReader(all)), nil
}
