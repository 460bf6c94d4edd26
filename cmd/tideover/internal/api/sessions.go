package api

import (
	"context"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/console/control"
)

// sessionsHandler handles requests about sessions.
type sessionsHandler struct{ sessions *admin.Sessions }

func (h sessionsHandler) list(ctx context.Context) (any, error) {
	list, err := h.sessions.List(ctx)
	return map[string]any{"sessions": list}, err
}

func (h sessionsHandler) show(ctx context.Context, name string) (session.Status, error) {
	return h.sessions.Get(ctx, name)
}

func (h sessionsHandler) output(r *request) (any, error) {
	q := r.query("after")
	if q.err != nil {
		return nil, q.err
	}
	return h.sessions.ReadOutput(r.Context(), r.id, q.values["after"])
}

// after returns the response to an operation on a session: err if it is not nil, else the new state
// of the session.
func (h sessionsHandler) after(r *request, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return h.sessions.Get(r.Context(), r.id)
}

// change returns the handler that calls do for a session. The request has no body.
func (h sessionsHandler) change(do func(s *admin.Sessions, ctx context.Context, name, by string) error) handler {
	return func(r *request) (any, error) {
		who, err := r.read()
		if err == nil {
			err = do(h.sessions, r.Context(), r.id, who)
		}
		return h.after(r, err)
	}
}

// readPause decodes and validates the body of a request to pause a session.
func readPause(o object, p *admin.SessionPause) error {
	var until *string
	if err := o.fields("until", &until, "tonight", &p.Tonight); err != nil {
		return err
	}
	if until == nil {
		return nil
	}
	if p.Tonight {
		return control.Invalid("tonight", "can't be combined with until")
	}
	var err error
	if p.Until, err = time.Parse(time.RFC3339, *until); err != nil {
		return control.Invalid("until", "%q is not a time such as 2026-11-15T07:00:00Z", control.Excerpt(*until))
	}
	return p.Validate()
}

func (h sessionsHandler) pause(r *request) (any, error) {
	var p admin.SessionPause
	who, o, err := r.plainChange()
	if err == nil {
		err = readPause(o, &p)
	}
	if err == nil {
		err = h.sessions.Pause(r.Context(), r.id, p, who)
	}
	return h.after(r, err)
}

func (h sessionsHandler) stop(r *request) (any, error) {
	var tonight bool
	who, err := r.read("tonight", &tonight)
	switch {
	case err != nil:
	case tonight:
		err = h.sessions.Pause(r.Context(), r.id, admin.SessionPause{Tonight: true}, who)
	default:
		err = h.sessions.Stop(r.Context(), r.id, who)
	}
	return h.after(r, err)
}

func (h sessionsHandler) reportLimit(r *request) (any, error) {
	var report session.LimitReport
	who, err := r.read("reason", &report.Reason, "line", &report.Line)
	if err == nil {
		err = h.sessions.ReportLimit(r.Context(), r.id, report, who)
	}
	return h.after(r, err)
}
