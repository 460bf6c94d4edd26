package client

import (
	"context"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// sessionCalls are the operations on sessions.
type sessionCalls struct{ *connection }

// Sessions returns the state of all sessions, sorted by name.
func (c sessionCalls) Sessions(ctx context.Context) ([]session.Status, error) {
	out, err := get[struct{ Sessions []session.Status }](ctx, c.connection, "sessions", nil)
	return out.Sessions, err
}

// Session returns the state of a session, with the last lines of its output.
func (c sessionCalls) Session(ctx context.Context, name string) (session.Status, error) {
	return get[session.Status](ctx, c.connection, pathOf("sessions", name), nil)
}

// SessionOutput returns the part of the output of a session that follows the position after. ""
// means the beginning of the kept output. The position for the next call is the Next of this part.
func (c sessionCalls) SessionOutput(ctx context.Context, name, after string) (session.OutputPart, error) {
	return get[session.OutputPart](ctx, c.connection, pathOf("sessions", name, "output"), queryOf(map[string]any{"after": after}))
}

// change applies the operation verb to a session, and returns the new state. in is the body of the
// request; nil means none.
func (c sessionCalls) change(ctx context.Context, name, verb string, in any) (session.Status, error) {
	return post[session.Status](ctx, c.connection, pathOf("sessions", name, verb), in)
}

// PauseSession pauses a session.
func (c sessionCalls) PauseSession(ctx context.Context, name string, p admin.SessionPause) (session.Status, error) {
	return c.change(ctx, name, "pause", p)
}

// ResumeSession continues a session that was paused or has ended.
func (c sessionCalls) ResumeSession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "resume", nil)
}

// RetrySession ends the wait of a session, so that its next attempt starts now.
func (c sessionCalls) RetrySession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "retry-now", nil)
}

// StopSession ends a session. If tonight is true, it only pauses the session until the morning.
func (c sessionCalls) StopSession(ctx context.Context, name string, tonight bool) (session.Status, error) {
	return c.change(ctx, name, "stop", map[string]bool{"tonight": tonight})
}

// ResetSession sets the used attempts and windows of a session to zero.
func (c sessionCalls) ResetSession(ctx context.Context, name string) (session.Status, error) {
	return c.change(ctx, name, "reset", nil)
}

// ReportSessionLimit reports that the program of a session has reached a limit.
func (c sessionCalls) ReportSessionLimit(ctx context.Context, name string, report session.LimitReport) (session.Status, error) {
	return c.change(ctx, name, "limit", report)
}
