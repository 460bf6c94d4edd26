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

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/retry"
)

// reconnect is the policy for a server that has answered before.
const reconnect = "exponential(50ms..20s) jitter=full attempts=unlimited"

// untilBack calls do until the server is back, and returns the last error.
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

// permanent marks an error that a repetition would not change: a rejection that is not about the
// state of the server, or a server that never answered.
func (c *connection) permanent(err error) error {
	if err != nil && !c.reached.Load() {
		return retry.Permanent(err)
	}
	if p, ok := errors.AsType[*control.Error](err); ok && p.Status != http.StatusServiceUnavailable && p.Status != http.StatusBadGateway && p.Status != http.StatusGatewayTimeout {
		return retry.Permanent(err)
	}
	return err
}

// streamCalls are the operations that outlast a restart of the server.
type streamCalls struct{ *connection }

// Result waits for the outcome of a run, also across a restart of the server. The error of a run
// that is dead or was canceled is a [*control.Error] with its Outcome.
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

// Outcome returns the state of a run, also across a restart of the server.
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

// poll waits up to 30 seconds for the outcome of a run.
func (c streamCalls) poll(ctx context.Context, id string) (over bool, output json.RawMessage, err error) {
	r, err := c.request(ctx, http.MethodGet, pathOf("runs", id, "result"), url.Values{"wait": {"30s"}}, nil)
	if err != nil {
		return false, nil, err
	}
	resp, err := c.send(r)
	if err != nil {
		return false, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode == http.StatusOK, bytes.TrimSpace(text), err
}

// EventFilter selects events.
type EventFilter struct {
	After    string // number or id of an event; empty means those to come, "0" all that are kept
	Run      string
	Workflow string
	Kinds    []string
	Once     bool // end with those that are there
}

// Events calls yield with each event, until it returns false, the context ends, or the server
// rejects the request. After a lost connection it continues with the next event.
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
		return true, nil // an event of a newer server is ignored
	})
}

// Follow calls yield with the events of a run from its start, and returns how it ended. After a
// lost connection it continues with the next event.
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
		err = fmt.Errorf("the events of run %s ended before it", id)
	}
	return end, err
}

// source is a stream of events that is opened again after a lost connection.
type source struct {
	client *connection
	path   string
	query  url.Values
	once   bool // do not open it again after its end
	last   string
	over   bool
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
				return nil // begins anew, with no failures
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// open reads the stream until it ends, and reports whether the server sent something: one that
// only closes the connection must not be called again and again.
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

// message is an event of a stream, not decoded.
type message struct{ id, name, data string }

// maxLine is the longest line that is read: the largest payload, escaped.
const maxLine = 4 << 20

// readMessage reads up to the next empty line. It calls alive for each line.
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
