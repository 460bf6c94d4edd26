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
	URL    string // URL of its page
	Why    string // why it gave up, in words
	Offers []offer
}

// sessionBody is one session.
type sessionBody struct {
	sessionRow
	RunURL string // URL of its run; "" before the first
	AllURL string // and with all attempts
	Chart  *chart
	Steps  []step
}

// sessionsPage is the list of sessions, and the page of each.
type sessionsPage struct{ *Site }

func (h sessionsPage) loadList(ctx context.Context, now time.Time) (part, error) {
	t, err := h.totals(ctx, false)
	if err != nil {
		return part{}, err
	}
	list, err := h.control.Sessions.List(ctx)
	if err != nil {
		return part{}, err
	}
	b := sessionsBody{States: map[string]int{}}
	polled := false // the events of a watch are not in our stream
	for i := range list {
		s := h.redact.session(list[i])
		polled = polled || s.In != ""
		b.States[s.State]++
		b.Rows = append(b.Rows, newSessionRow(s))
	}
	return part{
		template: "sessions", polled: polled,
		data: page{Title: "Sessions", Place: "sessions", Live: "/live/sessions", Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

func newSessionRow(s session.Status) sessionRow {
	return sessionRow{Status: s, URL: sessionPage(s.Name), Why: inWords(s.Reason), Offers: sessionOffers(&s)}
}

// loader returns the loader of the session that a request names.
func (h sessionsPage) loader(r *http.Request) loader {
	name := r.PathValue("session")
	return func(ctx context.Context, now time.Time) (part, error) { return h.load(ctx, name, now) }
}

func (h sessionsPage) load(ctx context.Context, name string, now time.Time) (part, error) {
	t, err := h.totals(ctx, false)
	if err != nil {
		return part{}, err
	}
	s, err := h.control.Sessions.Get(ctx, name)
	if err != nil {
		return part{}, err
	}
	s = h.redact.session(s)
	b := sessionBody{sessionRow: newSessionRow(s)}
	if s.Run != "" && s.In == "" {
		b.RunURL, b.AllURL = runURL(s.Run), runURL(s.Run)+"?all"
		if i, err := h.get(ctx, s.Run); err == nil { // it may have been deleted
			c := newChart(i, now)
			b.Chart = &c
			for k := range i.Steps {
				i.Steps[k].Progress = nil // the page shows it already
				b.Steps = append(b.Steps, newStep(&i.Steps[k], k, false))
			}
		}
	}
	return part{
		template: "session", moving: !s.Over(), polled: s.In != "",
		data: page{
			Title: "Session " + name, Place: "sessions", Live: "/live/sessions/" + url.PathEscape(name), Now: now, Dead: t.States["dead"], Body: b,
		},
	}, nil
}

// Line returns the line of output that made the session wait, or "" if it waits for another reason
// by now.
func (r *sessionRow) Line() string {
	if r.Last == nil || slices.Contains([]string{"human", "handler", "account"}, r.WaitBy) || r.State == "completed" || r.State == "stopped" {
		return ""
	}
	return r.Last.Line
}

// sessionPage returns the URL of a session.
func sessionPage(name string) string { return "/sessions/" + url.PathEscape(name) }

// sessionURL returns the URL of an action on a session.
func sessionURL(name, action string) string {
	return sessionPage(name) + "/" + url.PathEscape(action)
}
