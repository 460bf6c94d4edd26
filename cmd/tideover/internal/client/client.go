package client

import (
	"bytes"
	"cmp"
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
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/internal/console/control"
)

// maxAnswer limits how much of a response the client reads, in bytes.
const maxAnswer = 64 << 20

// Client calls the API of a server. It is safe for concurrent use.
type Client struct {
	*connection
	runCalls
	streamCalls
	sessionCalls
	providerCalls
	systemCalls
}

// connection sends requests to a server.
type connection struct {
	target  Target
	socket  string // path of the Unix socket; empty for TCP
	base    string // beginning of all URLs, without a slash at its end
	http    *http.Client
	reached atomic.Bool // the server has answered before, so a failure may be a restart: retry

	// OnReconnect is called when a stream or a wait is interrupted, with the reason and the delay
	// before the next attempt. It may be nil.
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
	c := &connection{target: t, socket: socket, base: base, http: &http.Client{
		Transport: transport,
		// A redirect must not take the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return &Client{c, runCalls{c}, streamCalls{c}, sessionCalls{c}, providerCalls{c}, systemCalls{c}}, nil
}

// Close closes idle connections.
func (c *connection) Close() { c.http.CloseIdleConnections() }

// Where returns the address of the server, for messages.
func (c *connection) Where() string { return cmp.Or(c.socket, c.base) }

// UnreachableError is the error of a request that got no response from a tideover server.
type UnreachableError struct {
	Where string // address of the server
	Err   error
}

// Error returns a message that says what to do, if the cause is known.
func (e *UnreachableError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("%s belongs to the tideover serve of another user: name yours with --server", e.Where)
	case errors.Is(e.Err, fs.ErrNotExist), errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no tideover serve at %s: start one with `tideover serve`, or name another with --server", e.Where)
	}
	if t, ok := errors.AsType[*trustError](e.Err); ok {
		return e.Where + ": " + t.Error()
	}
	return fmt.Sprintf("no answer from tideover serve at %s: %v", e.Where, e.Err)
}

// Unwrap returns the error of the connection.
func (e *UnreachableError) Unwrap() error { return e.Err }

// request returns a request with the token and the headers that the API expects. body is encoded as
// JSON; nil means no body.
func (c *connection) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	address := c.base + httpserver.APIPrefix + path
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
		r.Header.Set(httpserver.ByHeader, c.target.By)
	}
	return r, nil
}

// send sends a request. An error response of the API becomes a [*control.Error].
func (c *connection) send(r *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(r)
	if err != nil {
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // its text would repeat the address
		}
		return nil, &UnreachableError{c.Where(), untrusted(err)}
	}
	c.reached.Store(true)
	// An unhealthy server answers a health check with 503 and a normal body.
	ill := resp.StatusCode == http.StatusServiceUnavailable && httpserver.IsHealthPath(r.URL.Path)
	ours := resp.Header.Get(httpserver.APIHeader) != ""
	if ours && (resp.StatusCode/100 == 2 || ill) {
		return resp, nil
	}
	defer resp.Body.Close()
	p := &control.Error{Status: resp.StatusCode, Code: control.CodeInternal}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if wantsTLS(resp, text) {
		c.reached.Store(false) // the TLS layer has answered, not the API
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

// fetch sends a request and reads the response.
func (c *connection) fetch(r *http.Request) (status int, text []byte, err error) {
	resp, err := c.send(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return 0, nil, fmt.Errorf("response of %s: %w", c.Where(), err)
	}
	return resp.StatusCode, text, nil
}

// call sends a request and decodes the response.
func call[T any](ctx context.Context, c *connection, method, path string, query url.Values, in any) (out T, err error) {
	r, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return out, err
	}
	_, text, err := c.fetch(r)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("response of %s: %w", c.Where(), err)
	}
	return out, nil
}

// get sends a GET request and decodes the response.
func get[T any](ctx context.Context, c *connection, path string, query url.Values) (T, error) {
	return call[T](ctx, c, http.MethodGet, path, query, nil)
}

// post sends a POST request with the body in, and decodes the response.
func post[T any](ctx context.Context, c *connection, path string, in any) (T, error) {
	return call[T](ctx, c, http.MethodPost, path, nil, in)
}

// pathOf escapes the names and joins them to a path.
func pathOf(names ...string) string {
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return strings.Join(names, "/")
}

// repeated is a parameter of a query that occurs once for each value.
type repeated []string

// queryOf returns a query with the values that are not zero.
func queryOf(values map[string]any) url.Values {
	q := url.Values{}
	for name, value := range values {
		switch v := value.(type) {
		case repeated:
			if len(v) > 0 {
				q[name] = v
			}
			continue
		case []string:
			value = strings.Join(v, ",")
		case time.Time:
			value = v.Format(time.RFC3339Nano)
			if v.IsZero() {
				value = ""
			}
		}
		if !reflect.ValueOf(value).IsZero() {
			q.Set(name, fmt.Sprint(value))
		}
	}
	return q
}
