package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"time"
)

// endpoint is where a system answers: what is added before the upstream's paths,
// and the process whose time and memory are counted; 0 for none.
type endpoint struct {
	addr   string
	prefix string
	pid    int
}

// get returns a request for the small answer.
func (e endpoint) get() []byte {
	return fmt.Appendf(nil, "GET %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n\r\n", e.prefix, smallPath, e.addr)
}

// post returns a request with a body of 1 KiB.
func (e endpoint) post(path string) []byte {
	return fmt.Appendf(nil, "POST %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		e.prefix, path, e.addr, postSize, postBody())
}

// client is one connection. It dials again when the last one has ended.
type client struct {
	addr string
	text []byte // the request
	end  time.Time
	conn net.Conn
	r    *bufio.Reader
	m    message
}

// patience is how long after the end of a scenario an answer may come.
const patience = 10 * time.Second

// dialAll makes the connections before the clock starts.
func dialAll(n int, addr string, text []byte, length time.Duration) ([]*client, error) {
	all := make([]*client, n)
	for i := range all {
		all[i] = &client{addr: addr, text: text, end: time.Now().Add(length + patience), r: bufio.NewReader(nil)}
		if err := all[i].dial(); err != nil {
			closeAll(all[:i])
			return nil, err
		}
	}
	return all, nil
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.close()
	}
}

func (c *client) dial() error {
	// A dial without a context: the deadline says when it ends.
	conn, err := net.DialTimeout("tcp", c.addr, time.Until(c.end)) //nolint:noctx // see above
	if err != nil {
		return err
	}
	c.conn = conn
	c.r.Reset(conn)
	return conn.SetDeadline(c.end)
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ask sends the request and reads the head of the answer, which must be a 200.
// After an error the connection is closed.
func (c *client) ask() error {
	if c.conn == nil {
		if err := c.dial(); err != nil {
			return err
		}
	}
	if _, err := c.conn.Write(c.text); err != nil {
		return c.broken(err)
	}
	if err := readHead(c.r, &c.m); err != nil {
		return c.broken(unexpected(err))
	}
	if _, rest, _ := bytes.Cut(c.m.first, []byte(" ")); !bytes.HasPrefix(rest, []byte("200")) {
		return c.broken(fmt.Errorf("answer: %s", c.m.first))
	}
	return nil
}

func (c *client) broken(err error) error {
	c.close()
	return err
}

// exchange asks for the small answer and reads it.
func (c *client) exchange() error {
	if err := c.ask(); err != nil {
		return err
	}
	n, err := discardBody(c.r, &c.m)
	if err != nil {
		return c.broken(err)
	}
	if n != len(answer) {
		return c.broken(fmt.Errorf("answer of %d bytes, want %d", n, len(answer)))
	}
	if c.m.last {
		c.close()
	}
	return nil
}
