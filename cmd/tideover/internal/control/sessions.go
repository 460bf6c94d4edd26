package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// SessionManager runs sessions. A [*session.Manager] is one.
type SessionManager interface {
	List(ctx context.Context) ([]session.Status, error)
	Get(ctx context.Context, name string) (session.Status, error)
	ReadOutput(ctx context.Context, name, after string) (session.OutputPart, error)

	Pause(ctx context.Context, name, by string) error
	PauseUntil(ctx context.Context, name string, until time.Time, by string) error
	Tonight(name string) time.Time
	Resume(ctx context.Context, name, by string) error
	RetryNow(ctx context.Context, name, by string) error
	Stop(ctx context.Context, name, by string) error
	Reset(ctx context.Context, name, by string) error
	ReportLimit(ctx context.Context, name string, report session.LimitReport, by string) error
}

// Sessions has the operations on sessions.
type Sessions struct{ manager SessionManager }

// NewSessions returns the operations on the sessions of a manager.
func NewSessions(m SessionManager) *Sessions { return &Sessions{m} }

// List returns all sessions by name.
func (s *Sessions) List(ctx context.Context) ([]session.Status, error) { return s.manager.List(ctx) }

// Get returns a session with the last lines of its output.
func (s *Sessions) Get(ctx context.Context, name string) (session.Status, error) {
	return s.manager.Get(ctx, name)
}

// ReadOutput returns the output of a session after a position.
func (s *Sessions) ReadOutput(ctx context.Context, name, after string) (session.OutputPart, error) {
	part, err := s.manager.ReadOutput(ctx, name, after)
	if errors.Is(err, session.ErrPosition) {
		err = Invalid("after", "%v", err)
	}
	return part, err
}

// Validate returns an error for a pause that is over or contradicts itself.
func (p *SessionPause) Validate() error {
	if p.Until.IsZero() {
		return nil
	}
	if p.Tonight {
		return Invalid("tonight", "until is given too; one of them is enough")
	}
	if err := CheckMoment(p.Until); err != nil {
		return Invalid("until", "%v", err)
	}
	if !p.Until.After(time.Now()) {
		return Invalid("until", "%s is over", p.Until.Format(time.RFC3339))
	}
	return nil
}

// Pause pauses a session.
func (s *Sessions) Pause(ctx context.Context, name string, p SessionPause, by string) error {
	if p.Tonight {
		p.Until = s.manager.Tonight(name)
	}
	if p.Until.IsZero() {
		return s.manager.Pause(ctx, name, by)
	}
	return s.manager.PauseUntil(ctx, name, p.Until, by)
}

// Tonight returns when a session continues that is paused for tonight.
func (s *Sessions) Tonight(name string) time.Time { return s.manager.Tonight(name) }

// Resume continues a session that was paused or has ended.
func (s *Sessions) Resume(ctx context.Context, name, by string) error {
	return s.manager.Resume(ctx, name, by)
}

// RetryNow ends the wait of a session.
func (s *Sessions) RetryNow(ctx context.Context, name, by string) error {
	return s.manager.RetryNow(ctx, name, by)
}

// Stop ends a session.
func (s *Sessions) Stop(ctx context.Context, name, by string) error {
	return s.manager.Stop(ctx, name, by)
}

// Reset forgets the attempts and windows that a session has used.
func (s *Sessions) Reset(ctx context.Context, name, by string) error {
	return s.manager.Reset(ctx, name, by)
}

// CheckLimit returns an error if a limit is reported for an unknown reason.
func CheckLimit(r *session.LimitReport) error {
	if !slices.Contains(session.LimitReasons, r.Reason) {
		return Invalid("reason", "%q is not a reason for a limit; want %s", Excerpt(r.Reason), strings.Join(session.LimitReasons, " or "))
	}
	return nil
}

// ReportLimit reports a limit that the program of a session has reached.
func (s *Sessions) ReportLimit(ctx context.Context, name string, r session.LimitReport, by string) error {
	return s.manager.ReportLimit(ctx, name, r, by)
}
