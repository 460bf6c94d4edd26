package admin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// SessionManager is the part of a [*session.Manager] that [Sessions] needs.
type SessionManager interface {
	List(ctx context.Context) ([]session.Status, error)
	Get(ctx context.Context, name string) (session.Status, error)
	ReadOutput(ctx context.Context, name, after string) (session.OutputPart, error)

	PauseUntil(ctx context.Context, name string, until time.Time, by string) error
	Tonight(name string) time.Time
	Resume(ctx context.Context, name, by string) error
	RetryNow(ctx context.Context, name, by string) error
	Stop(ctx context.Context, name, by string) error
	Reset(ctx context.Context, name, by string) error
	ReportLimit(ctx context.Context, name string, report session.LimitReport, by string) error
}

// Sessions has the operations on sessions. It validates requests and passes them to its manager.
type Sessions struct{ SessionManager }

// ReadOutput returns the output of a session after a position; "" is the beginning of the output
// that is kept.
func (s *Sessions) ReadOutput(ctx context.Context, name, after string) (session.OutputPart, error) {
	part, err := s.SessionManager.ReadOutput(ctx, name, after)
	if errors.Is(err, session.ErrPosition) {
		err = control.Invalid("after", "%v", err)
	}
	return part, err
}

// Validate returns an error if the end of the pause is in the past, or set in two ways.
func (p *SessionPause) Validate() error {
	if p.Until.IsZero() {
		return nil
	}
	if p.Tonight {
		return control.Invalid("tonight", "can't be combined with until")
	}
	if err := control.CheckMoment(p.Until); err != nil {
		return control.Invalid("until", "%v", err)
	}
	if !p.Until.After(time.Now()) {
		return control.Invalid("until", "%s is in the past", p.Until.Format(time.RFC3339))
	}
	return nil
}

// Pause pauses a session. by names the user who requests it.
func (s *Sessions) Pause(ctx context.Context, name string, p SessionPause, by string) error {
	if p.Tonight {
		p.Until = s.Tonight(name)
	}
	return s.PauseUntil(ctx, name, p.Until, by)
}

// ReportLimit records that the program of a session has reached a limit.
func (s *Sessions) ReportLimit(ctx context.Context, name string, r session.LimitReport, by string) error {
	if !slices.Contains(session.LimitReasons, r.Reason) {
		return control.Invalid("reason", "%q is not a reason for a limit; want %s", control.Excerpt(r.Reason), strings.Join(session.LimitReasons, " or "))
	}
	return s.SessionManager.ReportLimit(ctx, name, r, by)
}
