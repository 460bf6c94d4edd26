package api

import (
	"context"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// sessionsHandler answers requests about sessions.
type sessionsHandler struct{ sessions *control.Sessions }

func (h sessionsHandler) list(ctx context.Context, _ string) (any, error) {
	list, err := h.sessions.List(ctx)
	return map[string]any{"sessions": list}, err
}

func (h sessionsHandler) show(ctx context.Context, name string) (any, error) {
	return h.sessions.Get(ctx, name)
}

func (h sessionsHandler) output(w http.ResponseWriter, r *http.Request, name string) error {
	q, err := queryOf(r, "after")
	if err != nil {
		return err
	}
	part, err := h.sessions.ReadOutput(r.Context(), name, q["after"])
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, part)
}

// change reads the body, applies an operation to a session, and answers with the session's
// state. read must take all fields of the body.
func (h sessionsHandler) change(w http.ResponseWriter, r *http.Request, name string, read func(object) error, do func(ctx context.Context, by string) error) error {
	who, o, err := readChange(r)
	if err != nil {
		return err
	}
	if err := read(o); err != nil {
		return err
	}
	if err := do(r.Context(), who); err != nil {
		return err
	}
	st, err := h.sessions.Get(r.Context(), name)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, st)
}

// changeOnly is change for an operation without a body.
func (h sessionsHandler) changeOnly(w http.ResponseWriter, r *http.Request, name string, do func(ctx context.Context, name, by string) error) error {
	return h.change(w, r, name, func(o object) error { return o.rejectUnknown() },
		func(ctx context.Context, by string) error { return do(ctx, name, by) })
}

// readPause reads the body of a pause.
func readPause(o object, p *control.SessionPause) error {
	var until *string
	if err := o.fields("until", &until, "tonight", &p.Tonight); err != nil {
		return err
	}
	if until == nil {
		return nil
	}
	if p.Tonight {
		return control.Invalid("tonight", "until is given too; one of them is enough")
	}
	var err error
	if p.Until, err = time.Parse(time.RFC3339, *until); err != nil {
		return control.Invalid("until", "%q is not a time such as 2026-11-15T07:00:00Z", control.Excerpt(*until))
	}
	return p.Validate()
}

func (h sessionsHandler) pause(w http.ResponseWriter, r *http.Request, name string) error {
	var p control.SessionPause
	return h.change(w, r, name, func(o object) error { return readPause(o, &p) },
		func(ctx context.Context, by string) error { return h.sessions.Pause(ctx, name, p, by) })
}

func (h sessionsHandler) stop(w http.ResponseWriter, r *http.Request, name string) error {
	var tonight bool
	return h.change(w, r, name, func(o object) error { return o.fields("tonight", &tonight) }, func(ctx context.Context, by string) error {
		if tonight {
			return h.sessions.Pause(ctx, name, control.SessionPause{Tonight: true}, by)
		}
		return h.sessions.Stop(ctx, name, by)
	})
}

func (h sessionsHandler) resume(w http.ResponseWriter, r *http.Request, name string) error {
	return h.changeOnly(w, r, name, h.sessions.Resume)
}

func (h sessionsHandler) retryNow(w http.ResponseWriter, r *http.Request, name string) error {
	return h.changeOnly(w, r, name, h.sessions.RetryNow)
}

func (h sessionsHandler) reset(w http.ResponseWriter, r *http.Request, name string) error {
	return h.changeOnly(w, r, name, h.sessions.Reset)
}

func (h sessionsHandler) reportLimit(w http.ResponseWriter, r *http.Request, name string) error {
	var report session.LimitReport
	read := func(o object) error {
		if err := o.fields("reason", &report.Reason, "line", &report.Line); err != nil {
			return err
		}
		return control.CheckLimit(&report)
	}
	return h.change(w, r, name, read, func(ctx context.Context, by string) error {
		return h.sessions.ReportLimit(ctx, name, report, by)
	})
}
