package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// Actions on a session, as they are named in URLs.
const (
	doPause    = "pause"
	doResume   = "resume"
	doRetryNow = "retry-now"
	doStop     = "stop"
	doTonight  = "tonight"
	doReset    = "reset"
)

// sessionTexts has the sentence that is shown after each action.
var sessionTexts = map[string]string{
	doPause: "Paused.", doResume: "It goes on.", doRetryNow: "The wait was ended.", doStop: "Stopped.",
	doTonight: "Stopped for tonight.", doReset: "Attempts and windows are forgotten.",
}

// sessionDone returns the sentence about the action of a query.
func sessionDone(v url.Values) string { return sessionTexts[v.Get("did")] }

// sessionOffers returns the actions that are possible for a session.
func sessionOffers(s *session.Status) (list []offer) {
	add := func(action, label string) {
		list = append(list, offer{action, label, sessionURL(s.Name, action), action == doStop})
	}
	switch s.State {
	case "idle":
		return nil
	case "completed", "stopped":
		add(doResume, "Begin anew")
		return list
	case "gave-up":
		add(doResume, "Put back to work")
		return list
	case "paused":
		add(doResume, "Resume")
		add(doRetryNow, "Retry now")
	case "waiting":
		add(doRetryNow, "Retry now")
		fallthrough
	default:
		add(doPause, "Pause")
		add(doTonight, "Stop for tonight")
	}
	add(doStop, "Stop")
	if s.Spent > 0 || s.Windows > 0 {
		add(doReset, "Reset")
	}
	return list
}

// confirm asks whether to apply an action to a session.
func (h sessionsPage) confirm(w http.ResponseWriter, r *http.Request) {
	q, err := h.question(r)
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	h.showQuestion(w, r, http.StatusOK, q)
}

func (h sessionsPage) question(r *http.Request) (*question, error) {
	name, action := r.PathValue("session"), r.PathValue("action")
	s, err := h.control.Sessions.Get(r.Context(), name)
	if err != nil {
		return nil, err
	}
	q := &question{Action: sessionURL(name, action), Back: "/sessions"}
	switch action {
	case doPause:
		q.Title, q.Button = "Pause "+name+"?", "Pause"
		q.Text = "It does nothing until somebody resumes it. A command that runs is told to end."
	case doResume:
		q.Title, q.Button = "Have "+name+" go on?", "Go on"
		q.Text = "It goes on where it was."
		switch s.State {
		case "completed", "stopped":
			q.Title, q.Button = "Have "+name+" begin anew?", "Begin anew"
			q.Text = "It was " + s.State + ". A new session begins, with new attempts and windows."
		case "gave-up":
			q.Title, q.Button = "Put "+name+" back to work?", "Put back to work"
			q.Text = "It gets new attempts and windows, and goes on where it gave up."
		}
	case doRetryNow:
		q.Title, q.Button = "Retry "+name+" now?", "Retry now"
		q.Text = "The wait ends, and the next command begins at once. If the limit is not over yet, it will stop again."
	case doStop:
		q.Title, q.Button, q.Danger = "Stop "+name+"?", "Stop the session", true
		q.Text = "It ends, and a command that runs is told to end. It can only begin anew after that."
	case doTonight:
		q.Title, q.Button = "Stop "+name+" for tonight?", "Stop for tonight"
		q.Text = "It does nothing until " + h.control.Sessions.Tonight(name).Format(dayLayout) + ". A command that runs is told to end."
	case doReset:
		q.Title, q.Button = "Reset "+name+"?", "Reset"
		q.Text = fmt.Sprintf("The %d attempts and %d windows that it has spent are forgotten, so that it may spend them again.", s.Spent, s.Windows)
	default:
		return nil, unknownSessionAction(action)
	}
	return q, nil
}

func unknownSessionAction(action string) error {
	return fmt.Errorf("%w: nothing is called %q", session.ErrUnknown, action)
}

// act applies an action to a session.
func (h sessionsPage) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	action := r.PathValue("action")
	if err := h.change(r.Context(), r.PathValue("session"), action, h.actor(r)); err != nil {
		h.failWith(w, r, err)
		return
	}
	h.feed.touchAll() // not all of this has an event
	if fromHTMX(r) {
		h.flash(w, r, sessionTexts[action])
		return
	}
	forward(w, r, "/sessions?did="+action)
}

func (h sessionsPage) change(ctx context.Context, name, action, by string) error {
	switch s := h.control.Sessions; action {
	case doPause:
		return s.Pause(ctx, name, control.SessionPause{}, by)
	case doResume:
		return s.Resume(ctx, name, by)
	case doRetryNow:
		return s.RetryNow(ctx, name, by)
	case doStop:
		return s.Stop(ctx, name, by)
	case doTonight:
		return s.Pause(ctx, name, control.SessionPause{Tonight: true}, by)
	case doReset:
		return s.Reset(ctx, name, by)
	}
	return unknownSessionAction(action)
}
