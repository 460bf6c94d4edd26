package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/tideover/tideover/internal/benchreport"
)

// endpoint is where a system is reached: its address, and a prefix for the upstream's
// paths. pid is the process whose processor time and memory are measured; 0 for none.
type endpoint struct {
	addr   string
	prefix string
	pid    int
}

// get returns a GET request for the small answer.
func (e endpoint) get() []byte {
	return fmt.Appendf(nil, "GET %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n\r\n", e.prefix, smallPath, e.addr)
}

// post returns a POST request with a body of 1 KiB.
func (e endpoint) post(path string) []byte {
	return fmt.Appendf(nil, "POST %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		e.prefix, path, e.addr, postSize, postBody())
}

// client makes requests over one connection, and reconnects if the connection has
// ended.
type client struct {
	addr string
	text []byte // the request
	end  time.Time
	conn net.Conn
	r    *bufio.Reader
	m    message
}

// answerTimeout is how long a client waits for answers after the end of a scenario.
const answerTimeout = 10 * time.Second

// dialAll opens n connections, before the measured time begins.
func dialAll(n int, addr string, text []byte, length time.Duration) ([]*client, error) {
	all := make([]*client, n)
	for i := range all {
		all[i] = &client{addr: addr, text: text, end: time.Now().Add(length + answerTimeout), r: bufio.NewReader(nil)}
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
	// It needs no context: the deadline ends it.
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

// sendRequest sends the request and reads the head of the answer, which must be
// a 200. After an error the connection is closed.
func (c *client) sendRequest() error {
	if c.conn == nil {
		if err := c.dial(); err != nil {
			return err
		}
	}
	if _, err := c.conn.Write(c.text); err != nil {
		return c.closeAfter(err)
	}
	if err := readHead(c.r, &c.m); err != nil {
		return c.closeAfter(unexpectedEOF(err))
	}
	if _, rest, _ := bytes.Cut(c.m.first, []byte(" ")); !bytes.HasPrefix(rest, []byte("200")) {
		return c.closeAfter(fmt.Errorf("answer: %s", c.m.first))
	}
	return nil
}

func (c *client) closeAfter(err error) error {
	c.close()
	return err
}

// exchange requests the small answer and reads it.
func (c *client) exchange() error {
	if err := c.sendRequest(); err != nil {
		return err
	}
	n, err := discardBody(c.r, &c.m)
	if err != nil {
		return c.closeAfter(err)
	}
	if n != len(answer) {
		return c.closeAfter(fmt.Errorf("answer of %d bytes, want %d", n, len(answer)))
	}
	if c.m.last {
		c.close()
	}
	return nil
}

// processorTime returns user and system time of the process that is measured.
func (e endpoint) processorTime() (own time.Duration, err error) {
	if e.pid != 0 {
		own, _, _, err = benchreport.ProcessorTime(strconv.Itoa(e.pid))
	}
	return own, err
}

// memory adds the resident memory of the process to the values.
func (e endpoint) memory(values map[string]float64, when string) error {
	if e.pid == 0 {
		return nil
	}
	return benchreport.Memory(strconv.Itoa(e.pid), values, when)
}
