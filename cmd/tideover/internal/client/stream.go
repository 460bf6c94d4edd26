package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/retry"
)

// reconnect is the retry policy for requests to a server that has answered before.
const reconnect = "exponential(50ms..20s) jitter=full attempts=unlimited"

// untilBack calls do until it succeeds, with the delays of the policy reconnect. It stops at the
// first permanent error, which it returns. If the context ends, it returns the cause.
func (c *connection) untilBack(ctx context.Context, do func(context.Context) error) error {
	err := retry.Must(reconnect, retry.WithOnRetry(func(_ context.Context, e retry.Event) error {
		if c.OnReconnect != nil {
			c.OnReconnect(e.Err, e.Delay)
		}
		return nil
	})).Do(ctx, do)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*retry.Error](err); ok && e.Last != nil {
		err = e.Last
	}
	if p, ok := errors.AsType[*control.Error](err); ok {
		return p
	}
	return err
}

// permanent marks errors that a retry would not change: the server never answered, or it rejected
// the request with a status other than 502, 503 and 504.
func (c *connection) permanent(err error) error {
	if err != nil && !c.reached.Load() {
		return retry.Permanent(err)
	}
	if p, ok := errors.AsType[*control.Error](err); ok && p.Status != http.StatusServiceUnavailable && p.Status != http.StatusBadGateway && p.Status != http.StatusGatewayTimeout {
		return retry.Permanent(err)
	}
	return err
}

// streamCalls are the operations that continue after a restart of the server.
type streamCalls struct{ *connection }

// Result waits for the end of a run and returns its output. It continues after a restart of the
// server. If the run did not succeed, the error is a [*control.Error] with the run's Outcome.
func (c streamCalls) Result(ctx context.Context, id string) (output json.RawMessage, err error) {
	for over := false; !over && err == nil; {
		err = c.untilBack(ctx, func(ctx context.Context) error {
			var err error
			over, output, err = c.poll(ctx, id)
			return c.permanent(err)
		})
	}
	if err != nil {
		return nil, err
	}
	return output, nil
}

// Outcome returns the state of a run. If the server restarts meanwhile, Outcome retries.
func (c streamCalls) Outcome(ctx context.Context, id string) (o control.Outcome, err error) {
	err = c.untilBack(ctx, func(ctx context.Context) error {
		info, err := runCalls(c).Get(ctx, id)
		if err == nil {
			o = *control.NewOutcome(info)
		}
		return c.permanent(err)
	})
	return o, err
}

// poll waits up to 30 seconds for the end of a run. over reports whether the run has succeeded; for
// a run that ended in another way it returns an error.
func (c streamCalls) poll(ctx context.Context, id string) (over bool, output json.RawMessage, err error) {
	r, err := c.request(ctx, http.MethodGet, pathOf("runs", id, "result"), url.Values{"wait": {"30s"}}, nil)
	if err != nil {
		return false, nil, err
	}
	status, text, err := c.fetch(r)
	return status == http.StatusOK, bytes.TrimSpace(text), err
}

// EventFilter selects events.
type EventFilter struct {
	After    string // number or id of an event; empty means only new events, "0" all kept events
	Run      string
	Workflow string
	Kinds    []string
	Once     bool // end after the kept events, without waiting for new ones
}

// Events calls yield with each event until yield returns false, the context ends, or the server
// rejects the request. After a lost connection it continues with the next event, and calls missed,
// which may be nil, if the server no longer has all events.
func (c streamCalls) Events(ctx context.Context, w EventFilter, yield func(control.Event) bool, missed func(control.Missed)) error {
	q := queryOf(map[string]any{"after": w.After, "run": w.Run, "workflow": w.Workflow, "kind": w.Kinds})
	if w.Once {
		q.Set("follow", "false")
	}
	s := &source{client: c.connection, path: "events", query: q, once: w.Once}
	return s.run(ctx, func(name, data string) (bool, error) {
		switch name {
		case "":
			var e control.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return false, err
			}
			return yield(e), nil
		case "missed":
			var m control.Missed
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				return false, err
			}
			if missed != nil {
				missed(m)
			}
		}
		return true, nil // ignore kinds of messages that a newer server may send
	})
}

// Follow calls yield with the events of a run, from its start to its end, and returns the outcome of
// the run. After a lost connection it continues with the next event.
func (c streamCalls) Follow(ctx context.Context, id string, yield func(control.Event)) (end control.Outcome, err error) {
	over := false
	s := &source{client: c.connection, path: pathOf("runs", id, "events")}
	err = s.run(ctx, func(name, data string) (bool, error) {
		switch name {
		case "":
			var e control.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return false, err
			}
			yield(e)
		case "end":
			over = true
			return false, json.Unmarshal([]byte(data), &end)
		}
		return true, nil
	})
	if err == nil && !over {
		err = fmt.Errorf("the event stream of run %s ended before the run", id)
	}
	return end, err
}

// source reads an event stream, and opens it again after a lost connection.
type source struct {
	client *connection
	path   string
	query  url.Values
	once   bool   // do not open the stream again after its end
	last   string // id of the last message
	over   bool   // the caller needs no more messages, or a stream with once has ended
}

var errBroken = errors.New("the connection to the server broke")

func (s *source) run(ctx context.Context, take func(name, data string) (bool, error)) error {
	for !s.over {
		err := s.client.untilBack(ctx, func(ctx context.Context) error {
			alive, err := s.open(ctx, take)
			if alive && !s.over {
				if s.client.OnReconnect != nil {
					s.client.OnReconnect(err, 0)
				}
				return nil // the loop calls untilBack again, which counts failures from 0
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// open reads the stream until it ends, and calls take with each message until take returns false.
// alive reports whether the server sent data, or kept the stream open for longer than a heartbeat.
// If not, the caller must wait before it opens the stream again.
func (s *source) open(ctx context.Context, take func(name, data string) (bool, error)) (alive bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := s.client.request(ctx, http.MethodGet, s.path, s.query, nil)
	if err != nil {
		return false, retry.Permanent(err)
	}
	if s.last != "" {
		r.Header.Set("Last-Event-ID", s.last)
	}
	resp, err := s.client.send(r)
	if err != nil {
		return false, s.client.permanent(err)
	}
	defer resp.Body.Close()
	opened := time.Now()
	silence := time.AfterFunc(3*control.Heartbeat, func() { cancel(errBroken) })
	defer silence.Stop()
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, maxLine)
	for {
		m, err := readMessage(in, func() { silence.Reset(3 * control.Heartbeat) })
		if err != nil {
			if s.once && errors.Is(err, io.EOF) {
				s.over = true
				return alive, nil
			}
			return alive, errBroken
		}
		if m.id != "" {
			s.last = m.id
		}
		alive = alive || m.data != "" || time.Since(opened) > control.Heartbeat
		if m.data == "" {
			continue
		}
		more, err := take(m.name, m.data)
		if err != nil {
			return false, retry.Permanent(err)
		}
		if !more {
			s.over = true
			return alive, nil
		}
	}
}

// message is an undecoded message of an event stream.
type message struct{ id, name, data string }

// maxLine is the longest line that is read, in bytes. The largest payload, escaped, fits into it.
const maxLine = 4 << 20

// readMessage reads a message, up to the empty line that ends it. It calls alive for each line.
func readMessage(in *bufio.Scanner, alive func()) (m message, err error) {
	for in.Scan() {
		alive()
		line := in.Text()
		if line == "" {
			return m, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			m.id = value
		case "event":
			m.name = value
		case "data":
			if m.data != "" {
				m.data += "\n"
			}
			m.data += value
		}
	}
	return m, cmp.Or(in.Err(), io.EOF)
}
