package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// streamConnections is the number of concurrent streams.
const streamConnections = 16

// stream measures how long events take to arrive. Each connection reads one stream
// after the other.
func (b *Bench) stream(ctx context.Context, t *tally, e endpoint, length time.Duration) error {
	clients, err := dialAll(streamConnections, e.addr, e.post(streamPath), length)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	first, later := t.samples("first"), t.samples("later")
	return t.count(e, func() (outcome, error) {
		return loop(ctx, clients, length, func(c *client) error { return c.readStream(first, later) }), nil
	})
}

// readStream requests a stream and reads it to its end.
func (c *client) readStream(first, later *samples) error {
	start := time.Now()
	if err := c.sendRequest(); err != nil {
		return err
	}
	if !c.m.chunked {
		return c.closeAfter(errors.New("answer: want a chunked stream, got a body of fixed length"))
	}
	n := 0
	r := bufio.NewReader(httputil.NewChunkedReader(c.r))
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c.closeAfter(err)
		}
		sent, ok := strings.CutPrefix(strings.TrimSpace(line), eventData)
		if !ok {
			continue
		}
		if n++; n == 1 {
			first.add([]time.Duration{time.Since(start)})
		} else if at, err := strconv.ParseInt(sent, 10, 64); err == nil {
			later.add([]time.Duration{time.Since(time.Unix(0, at))})
		}
	}
	if n != events {
		return c.closeAfter(fmt.Errorf("stream of %d events, want %d", n, events))
	}
	if err := endChunks(c.r); err != nil {
		return c.closeAfter(err)
	}
	return nil
}
