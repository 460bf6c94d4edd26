package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// Sessions returns where the sessions are, by name.
func (c *Client) Sessions(ctx context.Context) ([]session.Status, error) {
	var out struct{ Sessions []session.Status }
	err := c.call(ctx, http.MethodGet, "sessions", nil, nil, &out)
	return out.Sessions, err
}

// Session returns where a session is, with the last lines of its output.
func (c *Client) Session(ctx context.Context, name string) (s session.Status, err error) {
	err = c.call(ctx, http.MethodGet, "sessions/"+url.PathEscape(name), nil, nil, &s)
	return s, err
}

// SessionOutput returns the output of a session after a position: "" is the beginning of what
// is kept, and Next of a part is the position after it.
func (c *Client) SessionOutput(ctx context.Context, name, after string) (part session.OutputPart, err error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	err = c.call(ctx, http.MethodGet, "sessions/"+url.PathEscape(name)+"/output", query, nil, &part)
	return part, err
}

// change tells a session something, and returns where it is then.
func (c *Client) change(ctx context.Context, name, verb string, in any) (s session.Status, err error) {
	err = c.call(ctx, http.MethodPost, "sessions/"+url.PathEscape(name)+"/"+verb, nil, in, &s)
	return s, err
}

// PauseSession has a session do nothing for a while.
func (c *Client) PauseSession(ctx context.Context, name string, p SessionPause) (session.Status, error) {
	return c.change(ctx, name, "pause", p)
}

// ResumeSession has a session go on that was paused or has ended.
func (c *Client) ResumeSession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "resume", nil)
}

// RetrySession ends the wait of a session.
func (c *Client) RetrySession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "retry-now", nil)
}

// StopSession ends a session, or has it do nothing until tomorrow.
func (c *Client) StopSession(ctx context.Context, name string, tonight bool) (session.Status, error) {
	return c.change(ctx, name, "stop", map[string]bool{"tonight": tonight})
}

// ResetSession forgets the attempts and windows that a session has spent.
func (c *Client) ResetSession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "reset", nil)
}

// ReportSessionLimit reports a limit that the program of a session has run into.
func (c *Client) ReportSessionLimit(ctx context.Context, name string, report session.LimitReport) (session.Status, error) {
	return c.change(ctx, name, "limit", report)
}
