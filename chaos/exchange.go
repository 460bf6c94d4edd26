package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// exchange is one request and its answer.
type exchange struct {
	verdict
	server *Server
	state  *state
	w      http.ResponseWriter
	r      *http.Request
	upload *upload
	left   bool // release was called; guarded by the server's lock
}

// handle carries out the verdict. It returns an error if the answer is not complete.
func (v *exchange) handle() error {
	if !v.answer.Early {
		if err := v.receive(); err != nil {
			return err
		}
	}
	if err := v.server.pause(context.Background(), v.work); err != nil { // the work goes on if the client disconnects
		return err
	}
	if err := v.server.pause(v.r.Context(), v.delay); err != nil {
		return err
	}
	switch v.answer.Act {
	case "":
		return v.respond()
	case Hang:
		return v.server.hang(v.r.Context())
	}
	v.server.release(v)
	switch v.answer.Act {
	case Malformed:
		v.hangUp(malformed(v.r.ProtoMajor))
	case Close:
		v.hangUp("")
	default: // Reset, or Refuse for a connection that was accepted before the port closed
		v.kill()
	}
	return errFault
}

// conn returns the connection of the request, and a function to call when it is no longer
// used. If the handler of the chaos server runs in another server, it takes the connection
// over from that server. It returns nil if that server does not allow it, as on HTTP/2:
// then the answer can only be aborted.
func (v *exchange) conn() (c net.Conn, done func()) {
	if c := connOf(v.r.Context()); c != nil {
		return c, func() {}
	}
	c, _, err := http.NewResponseController(v.w).Hijack()
	if err != nil {
		return nil, func() {}
	}
	return c, func() { _ = c.Close() }
}

// kill ends the connection with a TCP RST.
func (v *exchange) kill() {
	if c, _ := v.conn(); c != nil {
		kill(c)
	}
}

// hangUp sends the text and closes the sending half of the connection. On HTTP/2 it then
// gives the client time to close the other half. The client may be sending, and closing
// both halves at once would cause a TCP RST, which is another fault.
func (v *exchange) hangUp(text string) {
	c, done := v.conn()
	defer done()
	if c == nil {
		return
	}
	_, _ = io.WriteString(c, text)
	closeWrite(c)
	if v.r.ProtoMajor == 2 {
		_ = v.server.pause(v.r.Context(), 5*time.Second)
	}
}

// malformed returns bytes that are not HTTP: a status line without a status, or a DATA
// frame for stream 0 of HTTP/2, which can't have data.
func malformed(major int) string {
	if major == 2 {
		return "\x00\x00\x04\x00\x00\x00\x00\x00\x00oops" // length 4, DATA, no flags, stream 0
	}
	return "HTTP/1.1 banana\r\nContent-Length: 0\r\n\r\n"
}

// receive reads the body of the request at the pace of the answer.
func (v *exchange) receive() error {
	pace := v.answer.Read
	if pace == (Pace{}) {
		_, err := io.Copy(v.upload, v.r.Body)
		return v.server.connectionError(err)
	}
	for {
		_, err := io.CopyN(v.upload, v.r.Body, pace.Bytes)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return v.server.connectionError(err)
		}
		// The next read notices a client that disconnects during its upload.
		if err := v.server.pause(context.Background(), pace.Every); err != nil {
			return err
		}
	}
}

// respond writes a response with a status.
func (v *exchange) respond() error {
	a := &v.answer
	o := &bodyContext{verdict: v.verdict, request: v.r, upload: v.upload, ask: v.upload.modelRequest(), now: time.Now()}
	p := o.compose()
	total := p.length()
	if a.End.Kind != "" {
		sent := p.offset(a.End.At)
		p.cut(sent)
		total = max(total, sent+1) // announce at least one byte more than is sent
	}
	p.dribble(a.Dribble)
	if !bodyAllowed(a.Status) || v.r.Method == http.MethodHead {
		p.chunks = nil
	}
	counted := !p.stream && !a.Chunked
	o.head(v.w.Header(), &p)
	if counted && bodyAllowed(a.Status) {
		v.w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
	}
	if err := v.write(p, a.End.Kind == "" && counted && len(p.chunks) < 2); err != nil {
		return err
	}
	if a.Early {
		if err := v.receive(); err != nil {
			return err
		}
	}
	return v.finish(counted)
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// head sets the headers of the response.
func (o *bodyContext) head(h http.Header, p *payload) {
	if p.kind != "" {
		h.Set("Content-Type", p.kind)
	}
	if p.stream {
		h.Set("Cache-Control", "no-cache")
	}
	h.Set("X-Request-Id", o.id("req_"))
	for i, piece := range padding(o.verdict.answer.Padding) {
		h.Set(fmt.Sprintf("X-Padding-%04d", i), piece)
	}
	writeHeaders(h, o.verdict.answer.Headers, o.now, o.verdict.due)
}

// padding returns header values that have size bytes together.
func padding(size int64) (list []string) {
	const most = 8 << 10 // clients limit the size of a single header, too
	for ; size > 0; size -= most {
		list = append(list, strings.Repeat("x", int(min(size, most))))
	}
	return list
}

// write sends the headers and the body. whole means that they can be sent without a flush
// in between.
func (v *exchange) write(p payload, whole bool) error {
	rc := http.NewResponseController(v.w)
	if v.answer.Early {
		_ = rc.EnableFullDuplex() // an error is no problem: HTTP/2 is always full duplex
	}
	last := func(rest int) {
		if rest == 0 && !v.answer.Early && v.answer.End.Kind != Stall {
			v.server.release(v)
		}
	}
	last(len(p.chunks))
	v.w.WriteHeader(v.answer.Status)
	if !whole || v.answer.Early {
		_ = rc.Flush()
	}
	for i, c := range p.chunks {
		if err := v.server.pause(v.r.Context(), c.pause); err != nil {
			return err
		}
		last(len(p.chunks) - 1 - i)
		if _, err := v.w.Write(c.data); err != nil {
			return v.server.connectionError(err)
		}
		if whole && !v.answer.Early {
			continue
		}
		if err := rc.Flush(); err != nil {
			return v.server.connectionError(err)
		}
	}
	return nil
}

// flushTime is how long net/http may take to send HTTP/2 frames after a flush.
const flushTime = 20 * time.Millisecond

// finish ends the response in the way that the answer's End states. counted means that the
// response has a Content-Length.
func (v *exchange) finish(counted bool) error {
	switch v.answer.End.Kind {
	case Stall:
		return v.server.hang(v.r.Context())
	case Reset:
		if v.r.ProtoMajor == 2 { // frames are sent shortly after Flush has returned
			_ = v.server.pause(v.r.Context(), flushTime)
		}
		v.kill()
		return errFault
	case Cut:
		if v.r.ProtoMajor == 2 && counted {
			return nil // the stream ends with less than the announced length
		}
		return errFault
	}
	return nil
}
