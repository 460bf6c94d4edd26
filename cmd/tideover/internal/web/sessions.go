package web

import (
	"context"
	"net/http"
	"net/url"
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
	Timeline string // address of its run; "" before the first
	Why      string // it gave up, in words
	Offers   []offer
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
	t, err := h.totals(ctx)
	if err != nil {
		return part{}, err
	}
	list, err := h.Sessions.List(ctx)
	if err != nil {
		return part{}, err
	}
	b := sessionsBody{States: map[string]int{}}
	for i := range list {
		s := h.cleanSession(list[i])
		b.States[s.State]++
		row := sessionRow{Status: s, Why: inWords(s.Reason), Offers: sessionOffers(&s)}
		if s.Run != "" {
			row.Timeline = runURL(s.Run)
		}
		b.Rows = append(b.Rows, row)
	}
	return part{
		template: "sessions-live",
		data:     page{Title: "Sessions", Place: "sessions", Live: "/live/sessions", Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

// cleanSession takes secrets out of what somebody else wrote.
func (h *handler) cleanSession(s session.Status) session.Status {
	s.WaitFor, s.Error = h.Redact(s.WaitFor), h.Redact(s.Error)
	if s.Last != nil {
		last := *s.Last
		last.Line = h.Redact(last.Line)
		s.Last = &last
	}
	return s
}

// Line returns the line of output because of which the session waits. It is not
// why it waits if somebody else has said so since.
func (r *sessionRow) Line() string {
	if r.Last == nil || r.WaitBy == "human" || r.WaitBy == "handler" || r.State == "completed" || r.State == "stopped" {
		return ""
	}
	return r.Last.Line
}

// sessionURL returns the address of something that can be done with a session.
func sessionURL(name, action string) string {
	return "/sessions/" + url.PathEscape(name) + "/" + url.PathEscape(action)
}
