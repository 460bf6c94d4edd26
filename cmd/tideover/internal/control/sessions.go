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

// Sessions has the operations on sessions: those of its manager, with the errors of the API.
type Sessions struct{ SessionManager }

// ReadOutput returns the output of a session after a position.
func (s *Sessions) ReadOutput(ctx context.Context, name, after string) (session.OutputPart, error) {
	part, err := s.SessionManager.ReadOutput(ctx, name, after)
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
		p.Until = s.Tonight(name)
	}
	if p.Until.IsZero() {
		return s.SessionManager.Pause(ctx, name, by)
	}
	return s.PauseUntil(ctx, name, p.Until, by)
}

// ReportLimit reports a limit that the program of a session has reached.
func (s *Sessions) ReportLimit(ctx context.Context, name string, r session.LimitReport, by string) error {
	if !slices.Contains(session.LimitReasons, r.Reason) {
		return Invalid("reason", "%q is not a reason for a limit; want %s", Excerpt(r.Reason), strings.Join(session.LimitReasons, " or "))
	}
	return s.SessionManager.ReportLimit(ctx, name, r, by)
}
