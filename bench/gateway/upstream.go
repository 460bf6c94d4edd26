package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	smallPath  = "/small"
	streamPath = "/stream"

	events     = 5 // of a stream; the first is sent at once
	eventEvery = 20 * time.Millisecond

	postSize = 1024
)

// answer is the upstream's answer to a request for smallPath.
const answer = `{"id":"0123456789abcdef","object":"answer","created":1700000000,"status":"done"}`

// postBody returns JSON of postSize bytes.
func postBody() string {
	const before, after = `{"text":"`, `"}`
	return before + strings.Repeat("tide over ", postSize)[:postSize-len(before)-len(after)] + after
}

var (
	smallAnswer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
	streamHead  = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n")
	streamEnd   = []byte("0\r\n\r\n")
	notFound    = []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
)

// serveUpstream answers on the listener until it is closed. It does not use net/http: the
// upstream and the load share one core, and with net/http they would use about as much of
// it as a proxy uses of its own core.
func serveUpstream(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			answerAll(c)
			_ = c.Close()
		}()
	}
}

// answerAll answers requests until the client disconnects or sends an invalid
// request.
func answerAll(c net.Conn) {
	r := bufio.NewReader(c)
	var m message
	for !m.last {
		if readHead(r, &m) != nil {
			return
		}
		if _, err := discardBody(r, &m); err != nil {
			return
		}
		if answerOne(c, target(m.first)) != nil {
			return
		}
	}
}

func answerOne(c net.Conn, path []byte) error {
	switch string(path) {
	case smallPath:
		_, err := c.Write(smallAnswer)
		return err
	case streamPath:
		return sendEvents(c)
	default:
		_, err := c.Write(notFound)
		return err
	}
}

// target returns the second word of a request line.
func target(line []byte) []byte {
	_, rest, _ := bytes.Cut(line, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	return path
}

// sendEvents sends a stream. Each event contains the time at which it was sent.
func sendEvents(c net.Conn) error {
	tick := time.Tick(eventEvery)
	text := append([]byte(nil), streamHead...)
	for i := range events {
		if i > 0 {
			<-tick
		}
		data := eventData + strconv.FormatInt(time.Now().UnixNano(), 10) + "\n\n"
		text = fmt.Appendf(text, "%x\r\n%s\r\n", len(data), data) // a chunk
		if _, err := c.Write(text); err != nil {
			return err
		}
		text = text[:0]
	}
	_, err := c.Write(streamEnd)
	return err
}

const eventData = "data: "
