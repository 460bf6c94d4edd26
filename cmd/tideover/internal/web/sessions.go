package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// sessionsBody is the list of sessions.
type sessionsBody struct {
	Rows   []sessionRow
	States map[string]int
}

// sessionRow is a session in the list.
type sessionRow struct {
	session.Status
	URL    string // address of its page
	Why    string // it gave up, in words
	Offers []offer
}

// sessionBody is one session.
type sessionBody struct {
	sessionRow
	RunURL string // address of its run; "" before the first
	AllURL string // and with all attempts
	Chart  *chart
	Steps  []step
}

func (h *handler) sessions(w http.ResponseWriter, r *http.Request) {
	p, err := h.lookAtSessions(r.Context(), time.Now())
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	p.data.Flash = sessionDone[r.URL.Query().Get("did")]
	h.show(w, r, http.StatusOK, "sessions", p.data)
}

func (h *handler) liveSessions(w http.ResponseWriter, r *http.Request) {
	h.stream(w, r, "", h.lookAtSessions)
}

func (h *handler) lookAtSessions(ctx context.Context, now time.Time) (part, error) {
	t, err := h.totals(ctx, false)
	if err != nil {
		return part{}, err
	}
	list, err := h.Sessions.List(ctx)
	if err != nil {
		return part{}, err
	}
	b := sessionsBody{States: map[string]int{}}
	polled := false // events of a watch do not come here
	for i := range list {
		s := h.cleanSession(list[i])
		polled = polled || s.In != ""
		b.States[s.State]++
		b.Rows = append(b.Rows, newSessionRow(s))
	}
	return part{
		template: "sessions-live", polled: polled,
		data: page{Title: "Sessions", Place: "sessions", Live: "/live/sessions", Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

func newSessionRow(s session.Status) sessionRow {
	return sessionRow{Status: s, URL: sessionPage(s.Name), Why: inWords(s.Reason), Offers: sessionOffers(&s)}
}

func (h *handler) session(w http.ResponseWriter, r *http.Request) {
	p, err := h.lookAtSession(r.Context(), r.PathValue("session"), time.Now())
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	p.data.Flash = sessionDone[r.URL.Query().Get("did")]
	h.show(w, r, http.StatusOK, "session", p.data)
}

func (h *handler) liveSession(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("session")
	h.stream(w, r, "", func(ctx context.Context, now time.Time) (part, error) { return h.lookAtSession(ctx, name, now) })
}

func (h *handler) lookAtSession(ctx context.Context, name string, now time.Time) (part, error) {
	t, err := h.totals(ctx, false)
	if err != nil {
		return part{}, err
	}
	s, err := h.Sessions.Get(ctx, name)
	if err != nil {
		return part{}, err
	}
	s = h.cleanSession(s)
	b := sessionBody{sessionRow: newSessionRow(s)}
	if s.Run != "" && s.In == "" {
		b.RunURL, b.AllURL = runURL(s.Run), runURL(s.Run)+"?all"
		if i, err := h.get(ctx, s.Run); err == nil { // it may be kept no longer
			c := draw(i, now)
			b.Chart = &c
			for k := range i.Steps {
				i.Steps[k].Progress = nil // it says what the page says
				b.Steps = append(b.Steps, newStep(&i.Steps[k], k, false))
			}
		}
	}
	return part{
		template: "session-live", moving: !s.Over(), polled: s.In != "",
		data: page{
			Title: "Session " + name, Place: "sessions", Live: "/live/sessions/" + url.PathEscape(name), Now: now, Dead: t.States["dead"], Body: b,
		},
	}, nil
}

// cleanSession takes secrets out of what somebody else wrote.
func (h *handler) cleanSession(s session.Status) session.Status {
	s.WaitFor, s.Error, s.NoResume, s.AccountLimit = h.Redact(s.WaitFor), h.Redact(s.Error), h.Redact(s.NoResume), h.Redact(s.AccountLimit)
	if s.Last != nil {
		last := *s.Last
		last.Line = h.Redact(last.Line)
		s.Last = &last
	}
	if s.Limit != nil {
		limit := *s.Limit
		limit.Line = h.Redact(limit.Line)
		s.Limit = &limit
	}
	s.Turns = slices.Clone(s.Turns)
	for i := range s.Turns {
		s.Turns[i].Line = h.Redact(s.Turns[i].Line)
	}
	s.Tail = slices.Clone(s.Tail)
	for i := range s.Tail {
		s.Tail[i] = h.Redact(s.Tail[i])
	}
	return s
}

// Line returns the line of output because of which the session waits. It is not
// why it waits if somebody else has said so since.
func (r *sessionRow) Line() string {
	if r.Last == nil || slices.Contains([]string{"human", "handler", "account"}, r.WaitBy) || r.State == "completed" || r.State == "stopped" {
		return ""
	}
	return r.Last.Line
}

// sessionPage returns the address of a session.
func sessionPage(name string) string { return "/sessions/" + url.PathEscape(name) }

// sessionURL returns the address of something that can be done with a session.
func sessionURL(name, action string) string {
	return sessionPage(name) + "/" + url.PathEscape(action)
}
