package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// reconnect is how a server is waited for that was there before.
const reconnect = "exponential(50ms..20s) jitter=full attempts=unlimited"

// again returns what waits for the server. What it refuses, it would refuse again.
func (c *Client) again() (*retry.Runner, error) {
	p, err := retry.Parse(reconnect)
	if err != nil {
		return nil, err
	}
	return retry.New(p, retry.WithOnRetry(func(_ context.Context, e retry.Event) error {
		if c.OnReconnect != nil {
			c.OnReconnect(e.Err, e.Delay)
		}
		return nil
	}))
}

// final says that an error will not pass: an answer that is not about the
// server's own state, or a server that never was there.
func (c *Client) final(err error) error {
	if err != nil && !c.met.Load() {
		return retry.Permanent(err)
	}
	if p, ok := errors.AsType[*Problem](err); ok && p.Status != http.StatusServiceUnavailable && p.Status != http.StatusBadGateway && p.Status != http.StatusGatewayTimeout {
		return retry.Permanent(err)
	}
	return err
}

// last returns the failure itself, without the account of the retries.
func last(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*retry.Error](err); ok && e.Last != nil {
		err = e.Last
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	return err
}

// Result waits for the outcome of a run, also while the server is away for a
// while. A run that is dead or was canceled is a *Problem with its Outcome.
func (c *Client) Result(ctx context.Context, id string) (json.RawMessage, error) {
	runner, err := c.again()
	if err != nil {
		return nil, err
	}
	var output json.RawMessage
	for {
		over := false
		err := runner.Do(ctx, func(ctx context.Context) error {
			var err error
			over, output, err = c.poll(ctx, id)
			return c.final(err)
		})
		if err != nil {
			return nil, last(ctx, err)
		}
		if over {
			return output, nil
		}
	}
}

// Outcome returns how a run stands, also if the server is away for a while.
func (c *Client) Outcome(ctx context.Context, id string) (o Outcome, err error) {
	runner, err := c.again()
	if err != nil {
		return o, err
	}
	err = runner.Do(ctx, func(ctx context.Context) error {
		info, err := c.Get(ctx, id)
		if err == nil {
			o = *outcome(info)
		}
		return c.final(err)
	})
	if err != nil {
		return o, last(ctx, err)
	}
	return o, nil
}

// poll asks for the outcome of a run.
func (c *Client) poll(ctx context.Context, id string) (over bool, output json.RawMessage, err error) {
	r, err := c.request(ctx, http.MethodGet, run(id, "result"), url.Values{"wait": {"30s"}}, nil)
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

// Wish says which events are wanted.
type Wish struct {
	After    string // number or id of an event; empty means those to come, "0" all that are kept
	Run      string
	Workflow string
	Kinds    []string
	Once     bool // end with those that are there
}

// Events calls yield with what happens, until it returns false, the context ends,
// or the server refuses. When the connection breaks it goes on where it was.
func (c *Client) Events(ctx context.Context, w Wish, yield func(Event) bool, missed func(Missed)) error {
	q := url.Values{}
	for name, v := range map[string]string{"after": w.After, "run": w.Run, "workflow": w.Workflow, "kind": strings.Join(w.Kinds, ",")} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if w.Once {
		q.Set("follow", strconv.FormatBool(false))
	}
	s := &source{client: c, path: "events", query: q, once: w.Once}
	return s.run(ctx, func(name, data string) (bool, error) {
		switch name {
		case "":
			var e Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return false, err
			}
			return yield(e), nil
		case "missed":
			var m Missed
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				return false, err
			}
			if missed != nil {
				missed(m)
			}
		}
		return true, nil // what a newer server may send is passed over
	})
}

// Follow calls yield with the feedback of a run from its start, and returns how it
// ended. When the connection breaks it goes on where it was.
func (c *Client) Follow(ctx context.Context, id string, yield func(Event)) (end Outcome, err error) {
	over := false
	s := &source{client: c, path: run(id, "events")}
	err = s.run(ctx, func(name, data string) (bool, error) {
		switch name {
		case "":
			var e Event
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

// source is a stream of events that is opened again when it breaks.
type source struct {
	client *Client
	path   string
	query  url.Values
	once   bool // its end is the end
	last   string
	over   bool
}

var errBroken = errors.New("the connection to the server broke")

func (s *source) run(ctx context.Context, take func(name, data string) (bool, error)) error {
	runner, err := s.client.again()
	if err != nil {
		return err
	}
	for !s.over {
		err := runner.Do(ctx, func(ctx context.Context) error {
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
			return last(ctx, err)
		}
	}
	return nil
}

// open reads the stream until it breaks, and reports whether it was of any use: a
// server that does nothing but close it must not be asked without end.
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
		return false, s.client.final(err)
	}
	defer resp.Body.Close()
	opened := time.Now()
	silence := time.AfterFunc(3*heartbeat, func() { cancel(errBroken) })
	defer silence.Stop()
	in := bufio.NewReader(resp.Body)
	for {
		m, err := readMessage(in, func() { silence.Reset(3 * heartbeat) })
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
		alive = alive || m.data != "" || time.Since(opened) > heartbeat
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

// message is an event as it stands in a stream.
type message struct{ id, name, data string }

// readMessage reads to the next empty line. alive is called at each line.
func readMessage(in *bufio.Reader, alive func()) (m message, err error) {
	for {
		line, err := readLine(in)
		if err != nil {
			return m, err
		}
		alive()
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
}

// maxLine is the longest line that is read: the largest payload, escaped.
const maxLine = 4 << 20

func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, more, err := in.ReadLine()
		if err != nil {
			return "", err
		}
		if line = append(line, part...); len(line) > maxLine {
			return "", fmt.Errorf("a line of more than %d bytes", maxLine)
		}
		if !more {
			return string(line), nil
		}
	}
}
