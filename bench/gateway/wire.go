package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
)

// message is the head of a request or of an answer.
type message struct {
	first   []byte // the request or status line; valid until the next read
	length  int    // of the body
	chunked bool   // then the length is unknown
	last    bool   // the connection ends with this message
}

var (
	contentLength    = []byte("content-length")
	transferEncoding = []byte("transfer-encoding")
	connection       = []byte("connection")
	chunked          = []byte("chunked")
	closing          = []byte("close")
)

// readHead reads a head into m, and allocates nothing. It parses only what is
// needed to find the end of a message.
func readHead(r *bufio.Reader, m *message) error {
	line, err := readLine(r)
	if err != nil {
		return err
	}
	*m = message{first: append(m.first[:0], line...)}
	for {
		if line, err = readLine(r); err != nil {
			return unexpectedEOF(err)
		}
		if len(line) == 0 {
			return nil
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return fmt.Errorf("header without a colon: %q", line)
		}
		if err := m.header(name, bytes.TrimSpace(value)); err != nil {
			return err
		}
	}
}

func (m *message) header(name, value []byte) (err error) {
	switch {
	case bytes.EqualFold(name, contentLength):
		// The conversion stays on the stack: Atoi keeps no string of this length.
		if m.length, err = strconv.Atoi(string(value)); err != nil || m.length < 0 {
			return fmt.Errorf("content-length %q", value)
		}
	case bytes.EqualFold(name, transferEncoding):
		m.chunked = bytes.EqualFold(value, chunked)
	case bytes.EqualFold(name, connection):
		m.last = bytes.EqualFold(value, closing)
	}
	return nil
}

// discardBody reads the body that follows the head and returns its length.
func discardBody(r *bufio.Reader, m *message) (int, error) {
	if !m.chunked {
		n, err := r.Discard(m.length)
		return n, unexpectedEOF(err)
	}
	n, err := io.Copy(io.Discard, httputil.NewChunkedReader(r))
	if err != nil {
		return int(n), unexpectedEOF(err)
	}
	return int(n), endChunks(r)
}

// endChunks reads what follows the last chunk: trailers, which are not kept, and
// an empty line.
func endChunks(r *bufio.Reader) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return unexpectedEOF(err)
		}
		if len(line) == 0 {
			return nil
		}
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		if len(line) > 0 {
			err = unexpectedEOF(err)
		}
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// unexpectedEOF converts the end of the connection inside a message to an
// error.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
