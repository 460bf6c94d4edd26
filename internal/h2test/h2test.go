// Package h2test is an HTTP/2 server for tests that writes its frames by itself, so that it
// can refuse streams and close connections in ways that net/http does not offer.
package h2test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// Stream is a request that the server got.
type Stream struct {
	Conn int    // number of the connection, from 1
	ID   uint32 // the stream of HTTP/2

	c net.Conn
}

// The error codes of RFC 9113, section 7, that tests use.
const (
	NoError         = 0x0
	InternalError   = 0x2
	RefusedStream   = 0x7
	EnhanceYourCalm = 0xb
)

// The types of frames, RFC 9113, section 6.
const (
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	framePing     = 6
	frameGoAway   = 7
)

// OK answers the request with status 200 and without a body.
func (s Stream) OK() { s.write(frameHeaders, 0x4|0x1, s.ID, []byte{0x88}) }

// Reset ends the stream with the error code.
func (s Stream) Reset(code uint32) {
	s.write(frameReset, 0, s.ID, binary.BigEndian.AppendUint32(nil, code))
}

// GoAway tells the client that the server processes no stream after last.
func (s Stream) GoAway(last, code uint32) {
	s.write(frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code))
}

func (s Stream) write(kind, flags byte, id uint32, payload []byte) {
	frame := []byte{0, 0, byte(len(payload)), kind, flags} // payloads are short
	frame = binary.BigEndian.AppendUint32(frame, id)
	_, _ = s.c.Write(append(frame, payload...))
}

// Serve starts a server on a socket, and returns its host and port. A nil config means no
// TLS. handle is called for the headers of each request, one call at a time. If it returns
// false, the server closes the connection. The server ignores the bodies of requests.
func Serve(t testing.TB, config *tls.Config, handle func(Stream) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // both sides write at the same time, which needs the buffers of a real socket
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	var (
		mu      sync.Mutex // held while handle runs
		open    []net.Conn
		ended   bool
		running sync.WaitGroup
	)
	running.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if ended { // after the connections were closed
				_ = c.Close()
			}
			open = append(open, c)
			mu.Unlock()
			running.Go(func() {
				defer c.Close()
				serveConn(n, c, func(s Stream) bool {
					mu.Lock()
					defer mu.Unlock()
					return handle(s)
				})
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		ended = true
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

// serveConn reads the frames of a connection until handle returns false.
func serveConn(n int, c net.Conn, handle func(Stream) bool) {
	_, _ = io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	conn := Stream{Conn: n, c: c}
	conn.write(frameSettings, 0, 0, nil)
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		switch kind, ack := head[3], head[4]&1 != 0; {
		case kind == frameSettings && !ack:
			conn.write(frameSettings, 1, 0, nil)
		case kind == framePing && !ack:
			conn.write(framePing, 1, 0, payload)
		case kind == frameHeaders:
			if !handle(Stream{n, binary.BigEndian.Uint32(head[5:9]), c}) {
				return
			}
		}
	}
}
