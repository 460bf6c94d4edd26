//go:build unix

package api

import (
	"context"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/testwait"
)

// prompt waits until the condition holds, and logs how long that took.
//
// real clock: the time is only logged. The documentation promises 100 ms.
func prompt(t *testing.T, what string, since time.Time, holds func() bool) {
	t.Helper()
	testwait.Until(t, what, holds)
	t.Logf("%s: after %v", what, time.Since(since).Round(100*time.Microsecond))
}

func TestSessionsObeyAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		first        string // state of the session before the action
		do           func(context.Context, *client.Client) (session.Status, error)
		state        string // expected state after the action; "" means any
		commands     int    // expected number of started commands
		stopped      bool   // the action is expected to stop the command
	}{
		{"pause while a command runs", working, "running", func(ctx context.Context, c *client.Client) (session.Status, error) {
			return c.PauseSession(ctx, "s", admin.SessionPause{})
		}, "paused", 1, true},
		{"pause until a time while a command runs", working, "running", func(ctx context.Context, c *client.Client) (session.Status, error) {
			return c.PauseSession(ctx, "s", admin.SessionPause{Until: time.Now().Add(time.Hour)})
		}, "waiting", 1, true},
		{"stop while a command runs", working, "running", func(ctx context.Context, c *client.Client) (session.Status, error) {
			return c.StopSession(ctx, "s", false)
		}, "stopped", 1, true},
		{"stop for tonight while a command runs", working, "running", func(ctx context.Context, c *client.Client) (session.Status, error) {
			return c.StopSession(ctx, "s", true)
		}, "waiting", 1, true},
		{"pause while it waits", limited, "waiting", func(ctx context.Context, c *client.Client) (session.Status, error) {
			return c.PauseSession(ctx, "s", admin.SessionPause{})
		}, "paused", 1, false},
		{"stop while it waits", limited, "waiting", func(ctx context.Context, c *client.Client) (session.Status, error) {
			return c.StopSession(ctx, "s", false)
		}, "stopped", 1, false},
		{"retry now", limited, "waiting", func(ctx context.Context, c *client.Client) (session.Status, error) {
			return c.RetrySession(ctx, "s")
		}, "", 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keep(t, map[string]string{"s": c.script})
			k.until("s", c.first)
			if c.stopped {
				testwait.Until(t, "the command runs", func() bool { return k.sign("begun") })
			}
			client := k.client()
			since := time.Now()
			if st, err := c.do(t.Context(), client); err != nil {
				t.Fatalf("%+v, %v", st, err)
			}
			prompt(t, "answered", since, func() bool { return true })
			if c.stopped {
				prompt(t, "the command is stopped", since, func() bool { return k.sign("stopped") })
			}
			prompt(t, "the API says so", since, func() bool {
				st, err := client.Session(t.Context(), "s")
				return err == nil && (c.state == "" || st.State == c.state) && st.Commands == c.commands
			})
		})
	}
}
