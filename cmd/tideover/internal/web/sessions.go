package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
)

// sessionsBody is the content of the page with all sessions.
type sessionsBody struct {
	Rows   []sessionRow
	States map[string]int // number of sessions by state
}

// sessionRow is a session, in the list or on its own page.
type sessionRow struct {
	session.Status
	URL    string // URL of its page
	Why    string // why it gave up, in words
	Setter string // what set its wait, in words
	Offers []pages.Offer
}

// sessionBody is the content of the page of a session.
type sessionBody struct {
	sessionRow
	RunURL string // URL of its run; "" before its first run
	AllURL string // URL of its run with all attempts
	Chart  *pages.Chart
	Steps  []pages.Step
}

// sessionsPage shows the list of sessions, and the page of each.
type sessionsPage struct{ server }

func (h sessionsPage) loadList(ctx context.Context, now time.Time) (pages.Part, error) {
	t, err := h.Totals(ctx, false)
	if err != nil {
		return pages.Part{}, err
	}
	list, err := h.control.Sessions.List(ctx)
	if err != nil {
		return pages.Part{}, err
	}
	b := sessionsBody{States: map[string]int{}}
	polled := false // true if a watch runs a session, whose events this server does not get
	for i := range list {
		s := h.redact.session(list[i])
		polled = polled || s.In != ""
		b.States[s.State]++
		row := newSessionRow(s)
		row.Offers = offersTo(ctx, row.Offers)
		b.Rows = append(b.Rows, row)
	}
	return pages.Part{
		Template: "sessions", Polled: polled,
		Data: pages.Page{Title: "Sessions", Place: "sessions", Live: "/live/sessions", Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

func newSessionRow(s session.Status) sessionRow {
	return sessionRow{Status: s, URL: sessionPage(s.Name), Why: pages.InWords(s.Reason), Setter: s.WaitSetter(), Offers: sessionOffers(&s)}
}

func (h sessionsPage) load(ctx context.Context, name string, now time.Time) (pages.Part, error) {
	t, err := h.Totals(ctx, false)
	if err != nil {
		return pages.Part{}, err
	}
	s, err := h.control.Sessions.Get(ctx, name)
	if err != nil {
		return pages.Part{}, err
	}
	s = h.redact.session(s)
	b := sessionBody{sessionRow: newSessionRow(s)}
	b.Offers = offersTo(ctx, b.Offers)
	if s.Run != "" && s.In == "" {
		b.RunURL, b.AllURL = pages.RunURL(s.Run), pages.RunURL(s.Run)+"?all"
		if i, err := h.Get(ctx, s.Run); err == nil { // the run may have been deleted
			for k := range i.Steps {
				i.Steps[k].Attempts = pages.Changed(i.Steps[k].Attempts, func(a *engine.AttemptInfo) {
					a.Wait = pages.ChangedCopy(a.Wait, func(w *engine.WaitInfo) { w.By = session.SetterText(w.By) })
				})
			}
			b.Chart = pages.NewChart(i, i.Steps, now)
			for k := range i.Steps {
				i.Steps[k].Progress = nil // the page shows the output of the session instead
				b.Steps = append(b.Steps, pages.NewStep(&i.Steps[k], k, false))
			}
		}
	}
	return pages.Part{
		Template: "session", Moving: !s.Over(), Polled: s.In != "",
		Data: pages.Page{
			Title: "Session " + name, Place: "sessions", Live: "/live/sessions/" + url.PathEscape(name), Now: now, Dead: t.States["dead"], Body: b,
		},
	}, nil
}

// Line returns the line of output because of which the session waits or gave up. It returns "" if the
// session now waits for another reason, or has ended.
func (r *sessionRow) Line() string {
	if r.Last == nil || slices.Contains([]string{"human", "handler", "account"}, r.WaitBy) || r.State == "completed" || r.State == "stopped" {
		return ""
	}
	return r.Last.Line
}

// sessionPage returns the URL of the page of a session.
func sessionPage(name string) string { return "/sessions/" + url.PathEscape(name) }

// Actions on a session, as they are named in URLs.
const (
	doPause   = "pause"
	doResume  = "resume"
	doWake    = "wake"
	doStop    = "stop"
	doTonight = "tonight"
	doReset   = "reset"
)

// sessionTexts has the sentence that is shown after each action on a session.
var sessionTexts = map[string]string{
	doPause: "Paused.", doResume: "Resumed.", doWake: "The wait was ended; the next command starts now.", doStop: "Stopped.",
	doTonight: "Stopped for tonight.", doReset: "Attempts and windows were reset.",
}

// sessionMeanings has a sentence about each action on a session that can be in the menu.
var sessionMeanings = map[string]string{
	doPause: "The session does nothing until it is resumed. A running command is stopped.", doWake: "The wait ends, and the next command starts now.",
	doTonight: "The session does nothing until the morning. A running command is stopped.", doReset: "The counts of used attempts and windows are set to 0.",
}

// sessionOffers returns the actions that are possible for a session.
func sessionOffers(s *session.Status) (list []pages.Offer) {
	add := func(action, label string) {
		list = append(list, pages.Offer{Name: action, Label: label, URL: pages.ActionURL(sessionPage(s.Name), action), Danger: action == doStop, Text: sessionMeanings[action]})
	}
	switch s.State {
	case "idle":
		return nil
	case "completed", "stopped":
		add(doResume, "Start again")
		return list
	case "gave-up":
		add(doResume, "Retry")
		return list
	case "paused":
		add(doResume, "Resume")
		add(doWake, "Wake")
	case "waiting":
		add(doWake, "Wake")
		fallthrough
	default:
		add(doPause, "Pause")
		add(doTonight, "Stop for tonight")
	}
	add(doStop, "Stop")
	if s.Spent > 0 || s.Windows > 0 {
		add(doReset, "Reset")
	}
	return pages.Fold(list)
}

// question returns the confirmation question for an action on a session.
func (h sessionsPage) question(r *http.Request) (*pages.Question, error) {
	name, action := r.PathValue("session"), r.PathValue("action")
	s, err := h.control.Sessions.Get(r.Context(), name)
	if err != nil {
		return nil, err
	}
	q := &pages.Question{Action: pages.ActionURL(sessionPage(name), action), Back: "/sessions"}
	switch action {
	case doPause:
		q.Title, q.Button = "Pause "+name+"?", "Pause"
		q.Text = sessionMeanings[action]
	case doResume:
		q.Title, q.Button = "Resume "+name+"?", "Resume"
		q.Text = "The session continues where it stopped."
		switch s.State {
		case "completed", "stopped":
			q.Title, q.Button = "Start "+name+" again?", "Start again"
			q.Text = "It was " + s.State + ". A new session starts, with new attempts and windows."
		case "gave-up":
			q.Title, q.Button = "Retry "+name+"?", "Retry"
			q.Text = "The session gets new attempts and windows, and continues where it gave up."
		}
	case doWake:
		q.Title, q.Button = "Wake "+name+"?", "Wake"
		q.Text = sessionMeanings[action] + " If the limit still applies, the session waits again."
	case doStop:
		q.Title, q.Button, q.Danger = "Stop "+name+"?", "Stop the session", true
		q.Text = "The session ends, and a running command is stopped. After that the session can only be started again from the beginning."
	case doTonight:
		q.Title, q.Button = "Stop "+name+" for tonight?", "Stop for tonight"
		q.Text = "The session does nothing until " + h.control.Sessions.Tonight(name).Format(pages.DayLayout) + ". A running command is stopped."
	case doReset:
		q.Title, q.Button = "Reset "+name+"?", "Reset"
		q.Text = fmt.Sprintf("The counts of used attempts (%d) and windows (%d) are set to 0.", s.Spent, s.Windows)
	default:
		return nil, pages.UnknownAction(action)
	}
	return q, nil
}

// act applies an action to a session.
func (h sessionsPage) act(r *http.Request) (did, to string, err error) {
	action := r.PathValue("action")
	if err := h.change(r.Context(), r.PathValue("session"), action, pages.ActorOf(r)); err != nil {
		return "", "", err
	}
	h.Changed() // some of these actions cause no event
	return sessionTexts[action], "/sessions?did=" + action, nil
}

func (h sessionsPage) change(ctx context.Context, name, action, by string) error {
	switch s := h.control.Sessions; action {
	case doPause:
		return s.Pause(ctx, name, admin.SessionPause{}, by)
	case doResume:
		return s.Resume(ctx, name, by)
	case doWake:
		return s.RetryNow(ctx, name, by)
	case doStop:
		return s.Stop(ctx, name, by)
	case doTonight:
		return s.Pause(ctx, name, admin.SessionPause{Tonight: true}, by)
	case doReset:
		return s.Reset(ctx, name, by)
	}
	return pages.UnknownAction(action)
}
