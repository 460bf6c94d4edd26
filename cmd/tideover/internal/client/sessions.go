package client

import (
	"context"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// sessionCalls are the operations on sessions.
type sessionCalls struct{ *connection }

// Sessions returns the state of all sessions, by name.
func (c sessionCalls) Sessions(ctx context.Context) ([]session.Status, error) {
	out, err := get[struct{ Sessions []session.Status }](ctx, c.connection, "sessions", nil)
	return out.Sessions, err
}

// Session returns the state of a session, with the last lines of its output.
func (c sessionCalls) Session(ctx context.Context, name string) (session.Status, error) {
	return get[session.Status](ctx, c.connection, pathOf("sessions", name), nil)
}

// SessionOutput returns the output of a session after a position: "" is the beginning of the
// output that is kept, and Next of a part is the position after it.
func (c sessionCalls) SessionOutput(ctx context.Context, name, after string) (session.OutputPart, error) {
	return get[session.OutputPart](ctx, c.connection, pathOf("sessions", name, "output"), queryOf(map[string]any{"after": after}))
}

// change applies an operation to a session, and returns its state after that.
func (c sessionCalls) change(ctx context.Context, name, verb string, in any) (session.Status, error) {
	return post[session.Status](ctx, c.connection, pathOf("sessions", name, verb), in)
}

// PauseSession pauses a session.
func (c sessionCalls) PauseSession(ctx context.Context, name string, p control.SessionPause) (session.Status, error) {
	return c.change(ctx, name, "pause", p)
}

// ResumeSession continues a session that was paused or has ended.
func (c sessionCalls) ResumeSession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "resume", nil)
}

// RetrySession ends the wait of a session.
func (c sessionCalls) RetrySession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "retry-now", nil)
}

// StopSession ends a session, or pauses it until tomorrow.
func (c sessionCalls) StopSession(ctx context.Context, name string, tonight bool) (session.Status, error) {
	return c.change(ctx, name, "stop", map[string]bool{"tonight": tonight})
}

// ResetSession forgets the attempts and windows that a session has used.
func (c sessionCalls) ResetSession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "reset", nil)
}

// ReportSessionLimit reports a limit that the program of a session has reached.
func (c sessionCalls) ReportSessionLimit(ctx context.Context, name string, report session.LimitReport) (session.Status, error) {
	return c.change(ctx, name, "limit", report)
}
