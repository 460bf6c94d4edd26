package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tideover/tideover/engine"
)

// maxAnswer is how much of an answer is read.
const maxAnswer = 64 << 20

// Client asks a server. Its methods may be called by several goroutines.
type Client struct {
	target Target
	socket string // empty for TCP
	base   string
	http   *http.Client
	met    atomic.Bool // it was there: when it is not, it will be back

	// OnReconnect is told why a stream or a wait was interrupted, and for how long it
	// will not be tried again. It may be nil.
	OnReconnect func(err error, wait time.Duration)
}

// Dial returns a client for the server. It does not connect yet.
func Dial(t Target) (*Client, error) {
	socket, base, err := t.resolve()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		DialContext:     (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.Roots},
	}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return &Client{target: t, socket: socket, base: base, http: &http.Client{
		Transport: transport,
		// A token must not follow to wherever somebody points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Where returns where the server is, for people.
func (c *Client) Where() string {
	if c.socket != "" {
		return c.socket
	}
	return c.base
}

// UnreachableError says that there is no server.
type UnreachableError struct {
	Where string
	Err   error
}

// Error says what to do.
func (e *UnreachableError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("%s belongs to somebody else's tideover serve: name yours with --server", e.Where)
	case errors.Is(e.Err, fs.ErrNotExist), errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no tideover serve at %s: start one with `tideover serve`, or name another with --server", e.Where)
	}
	if t, ok := errors.AsType[*trustError](e.Err); ok {
		return e.Where + ": " + t.Error()
	}
	return fmt.Sprintf("no answer of tideover serve at %s: %v", e.Where, e.Err)
}

// Unwrap returns what the system says.
func (e *UnreachableError) Unwrap() error { return e.Err }

// request returns a request with what every one has.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	address := c.base + Prefix + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, address, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.socket == "" && !c.target.Token.IsZero() {
		r.Header.Set("Authorization", "Bearer "+c.target.Token.Reveal())
	}
	if c.target.By != "" {
		r.Header.Set(byHeader, c.target.By)
	}
	return r, nil
}

// send sends a request. An answer that is a problem becomes an error.
func (c *Client) send(r *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(r)
	if err != nil {
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // its text would be the address
		}
		return nil, &UnreachableError{c.Where(), untrusted(err)}
	}
	c.met.Store(true)
	// That a server can't work is no problem with asking it how it is.
	ill := resp.StatusCode == http.StatusServiceUnavailable && isHealth(r.URL.Path)
	ours := resp.Header.Get(ourHeader) != ""
	if ours && (resp.StatusCode/100 == 2 || ill) {
		return resp, nil
	}
	defer resp.Body.Close()
	p := &Problem{Status: resp.StatusCode, Code: CodeInternal}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if wantsTLS(resp, text) {
		c.met.Store(false) // nobody who answers what is asked
		return nil, &UnreachableError{c.Where(), errWantsTLS}
	}
	if !ours || json.Unmarshal(text, p) != nil || p.Message == "" {
		p.Message = fmt.Sprintf("%s answers %s, and does not look like tideover", c.Where(), resp.Status)
	}
	if p.Status == http.StatusUnauthorized {
		p.Hint = "set " + TokenVar + " to the server's token"
	}
	return nil, p
}

// call asks, and reads the answer into out.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	r, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	resp, err := c.send(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("answer of %s: %w", c.Where(), err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("answer of %s: %w", c.Where(), err)
	}
	return nil
}

func run(id string, what ...string) string {
	return strings.Join(append([]string{"runs", url.PathEscape(id)}, what...), "/")
}

// Status returns how the server is.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.call(ctx, http.MethodGet, "status", nil, nil, &s)
	return s, err
}

// Healthy reports whether the server works. That it does not is no error, as long
// as it answers.
func (c *Client) Healthy(ctx context.Context) (h Health, err error) {
	err = c.call(ctx, http.MethodGet, "healthz", nil, nil, &h)
	return h, err
}

// Workflows returns what can be started.
func (c *Client) Workflows(ctx context.Context) ([]Workflow, error) {
	out, err := c.AllWorkflows(ctx)
	return out.Workflows, err
}

// AllWorkflows returns what can be started, and whether their schedules are known.
func (c *Client) AllWorkflows(ctx context.Context) (out Workflows, err error) {
	err = c.call(ctx, http.MethodGet, "workflows", nil, nil, &out)
	return out, err
}

// Schedules returns what is started by the calendar.
func (c *Client) Schedules(ctx context.Context) ([]engine.Schedule, error) {
	var out struct{ Schedules []engine.Schedule }
	err := c.call(ctx, http.MethodGet, "schedules", nil, nil, &out)
	return out.Schedules, err
}

// Dead returns the dead runs, grouped by how they failed; on request also those of
// workflows that are [Internal].
func (c *Client) Dead(ctx context.Context, limit int, internal bool) (out Dead, err error) {
	q := url.Values{}
	if internal {
		q.Set("internal", "true")
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	err = c.call(ctx, http.MethodGet, "dead", q, nil, &out)
	return out, err
}

// Start starts a run.
func (c *Client) Start(ctx context.Context, s Start) (out Started, err error) {
	err = c.call(ctx, http.MethodPost, "runs", nil, s, &out)
	return out, err
}

// List returns runs.
func (c *Client) List(ctx context.Context, f Filter) (page engine.Page, err error) {
	err = c.call(ctx, http.MethodGet, "runs", f.values(), nil, &page)
	return page, err
}

// Get returns a run with its whole history. It is named by its id, the beginning
// of it, or its key.
func (c *Client) Get(ctx context.Context, id string) (*engine.Info, error) {
	info := new(engine.Info)
	err := c.call(ctx, http.MethodGet, run(id), nil, nil, info)
	return info, err
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, id string) (o Outcome, err error) {
	err = c.call(ctx, http.MethodPost, run(id, "cancel"), nil, nil, &o)
	return o, err
}

// Retry puts a dead run back to work.
func (c *Client) Retry(ctx context.Context, id string) (o Outcome, err error) {
	err = c.call(ctx, http.MethodPost, run(id, "retry"), nil, nil, &o)
	return o, err
}

// Wake ends the waits of a run.
func (c *Client) Wake(ctx context.Context, id string) (o Outcome, err error) {
	err = c.call(ctx, http.MethodPost, run(id, "wake"), nil, nil, &o)
	return o, err
}

// Replay starts a run in the place of one that has ended, with another input
// unless it is nil.
func (c *Client) Replay(ctx context.Context, id string, input json.RawMessage) (out Started, err error) {
	in := map[string]json.RawMessage{}
	if input != nil {
		in["input"] = input
	}
	err = c.call(ctx, http.MethodPost, run(id, "replay"), nil, in, &out)
	return out, err
}

// Rerun starts a run in the place of one that has ended, beginning with the step.
func (c *Client) Rerun(ctx context.Context, id, step string) (out Started, err error) {
	err = c.call(ctx, http.MethodPost, run(id, "rerun"), nil, map[string]string{"step": step}, &out)
	return out, err
}

// RetryLatest starts a run in the place of one that has ended, by the current
// definition, with the results of the steps that are the same.
func (c *Client) RetryLatest(ctx context.Context, id string, l Latest) (out Started, err error) {
	err = c.call(ctx, http.MethodPost, run(id, "retry-latest"), nil, l, &out)
	return out, err
}

// RetryMany puts many dead runs back to work: at most a thousand in a call.
func (c *Client) RetryMany(ctx context.Context, b Bulk) (d Done, err error) {
	err = c.call(ctx, http.MethodPost, "runs/retry", nil, b.wire(), &d)
	return d, err
}

// CancelMany ends many runs: at most a thousand in a call.
func (c *Client) CancelMany(ctx context.Context, b Bulk) (d Done, err error) {
	err = c.call(ctx, http.MethodPost, "runs/cancel", nil, b.wire(), &d)
	return d, err
}

// wire returns the request without what is not for its filter.
func (b Bulk) wire() Bulk {
	if b.Filter != nil {
		f := *b.Filter
		f.Limit, f.After, f.Order = 0, "", ""
		b.Filter = &f
	}
	return b
}

// Backup copies everything to a folder on the server's machine.
func (c *Client) Backup(ctx context.Context, dir string) error {
	var out any
	return c.call(ctx, http.MethodPost, "backup", nil, map[string]string{"dir": dir}, &out)
}
