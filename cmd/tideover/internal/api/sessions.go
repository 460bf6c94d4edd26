package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// Sessions are those that somebody may look at and change. A [*session.Manager]
// is one of these.
type Sessions interface {
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

// SessionPause says for how long a session does nothing. The zero value is until
// somebody resumes it.
type SessionPause struct {
	Until   time.Time `json:"until,omitzero"`
	Tonight bool      `json:"tonight,omitempty"` // until the end of its quiet hours, or seven in the morning
}

func (p *SessionPause) read(o object) error {
	var until *string
	if err := o.fields("until", &until, "tonight", &p.Tonight); err != nil {
		return err
	}
	if until == nil {
		return nil
	}
	if p.Tonight {
		return bad("tonight", "until is given too; one of them is enough")
	}
	var err error
	if p.Until, err = time.Parse(time.RFC3339, *until); err != nil {
		return bad("until", "%q is not a time such as 2026-11-15T07:00:00Z", excerpt(*until))
	}
	if err := checkMoment(p.Until); err != nil {
		return bad("until", "%v", err)
	}
	if !p.Until.After(time.Now()) {
		return bad("until", "%s is over", p.Until.Format(time.RFC3339))
	}
	return nil
}

func (s *server) listSessions(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	list, err := s.sessions.List(r.Context())
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"sessions": list})
}

func (s *server) showSession(w http.ResponseWriter, r *http.Request, name string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	st, err := s.sessions.Get(r.Context(), name)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, st)
}

func (s *server) sessionOutput(w http.ResponseWriter, r *http.Request, name string) error {
	q, err := queryOf(r, "after")
	if err != nil {
		return err
	}
	part, err := s.sessions.ReadOutput(r.Context(), name, q["after"])
	if errors.Is(err, session.ErrPosition) {
		return bad("after", "%v", err)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, part)
}

// withSession does something with a session, and answers where it is then. What
// do reads of the body it takes; the rest is refused.
func (s *server) withSession(w http.ResponseWriter, r *http.Request, name string, read func(object) error, do func(ctx context.Context, by string) error) error {
	who, o, err := asked(r)
	if err != nil {
		return err
	}
	if err := read(o); err != nil {
		return err
	}
	if err := do(r.Context(), who); err != nil {
		return err
	}
	return s.showSession(w, r, name)
}

// changeSession does what needs to be told nothing.
func (s *server) changeSession(w http.ResponseWriter, r *http.Request, name string, do func(ctx context.Context, name, by string) error) error {
	return s.withSession(w, r, name, func(o object) error { return o.rest() },
		func(ctx context.Context, by string) error { return do(ctx, name, by) })
}

func (s *server) pauseSession(w http.ResponseWriter, r *http.Request, name string) error {
	var p SessionPause
	return s.withSession(w, r, name, p.read, func(ctx context.Context, by string) error {
		if p.Tonight {
			p.Until = s.sessions.Tonight(name)
		}
		if p.Until.IsZero() {
			return s.sessions.Pause(ctx, name, by)
		}
		return s.sessions.PauseUntil(ctx, name, p.Until, by)
	})
}

func (s *server) stopSession(w http.ResponseWriter, r *http.Request, name string) error {
	var tonight bool
	read := func(o object) error { return o.fields("tonight", &tonight) }
	return s.withSession(w, r, name, read, func(ctx context.Context, by string) error {
		if tonight {
			return s.sessions.PauseUntil(ctx, name, s.sessions.Tonight(name), by)
		}
		return s.sessions.Stop(ctx, name, by)
	})
}

func (s *server) resumeSession(w http.ResponseWriter, r *http.Request, name string) error {
	return s.changeSession(w, r, name, s.sessions.Resume)
}

func (s *server) retrySession(w http.ResponseWriter, r *http.Request, name string) error {
	return s.changeSession(w, r, name, s.sessions.RetryNow)
}

func (s *server) resetSession(w http.ResponseWriter, r *http.Request, name string) error {
	return s.changeSession(w, r, name, s.sessions.Reset)
}

func (s *server) reportSessionLimit(w http.ResponseWriter, r *http.Request, name string) error {
	var report session.LimitReport
	read := func(o object) error {
		if err := o.fields("reason", &report.Reason, "line", &report.Line); err != nil {
			return err
		}
		if !slices.Contains(session.LimitReasons, report.Reason) {
			return bad("reason", "%q is not a reason for a limit; want %s", excerpt(report.Reason), strings.Join(session.LimitReasons, " or "))
		}
		return nil
	}
	return s.withSession(w, r, name, read, func(ctx context.Context, by string) error {
		return s.sessions.ReportLimit(ctx, name, report, by)
	})
}
