package web

import (
	"context"
	"fmt"
	"net/http"

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
	doPause: "Paused.", doResume: "Resumed.", doRetryNow: "The wait was ended; the next command starts now.", doStop: "Stopped.",
	doTonight: "Stopped for tonight.", doReset: "Attempts and windows were reset.",
}

// sessionOffers returns the actions that are possible for a session.
func sessionOffers(s *session.Status) (list []offer) {
	add := func(action, label string) {
		list = append(list, offer{action, label, sessionURL(s.Name, action), action == doStop})
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

// question asks whether to apply an action to a session.
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
		q.Text = "The session does nothing until it is resumed. A running command is stopped."
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
	case doRetryNow:
		q.Title, q.Button = "Retry "+name+" now?", "Retry now"
		q.Text = "The wait ends, and the next command starts now. If the limit still applies, the session waits again."
	case doStop:
		q.Title, q.Button, q.Danger = "Stop "+name+"?", "Stop the session", true
		q.Text = "The session ends, and a running command is stopped. After that the session can only be started again from the beginning."
	case doTonight:
		q.Title, q.Button = "Stop "+name+" for tonight?", "Stop for tonight"
		q.Text = "The session does nothing until " + h.control.Sessions.Tonight(name).Format(dayLayout) + ". A running command is stopped."
	case doReset:
		q.Title, q.Button = "Reset "+name+"?", "Reset"
		q.Text = fmt.Sprintf("The counts of used attempts (%d) and windows (%d) are set to 0.", s.Spent, s.Windows)
	default:
		return nil, unknownSessionAction(action)
	}
	return q, nil
}

func unknownSessionAction(action string) error {
	return fmt.Errorf("%w: unknown action %q", session.ErrUnknown, action)
}

// act applies an action to a session.
func (h sessionsPage) act(r *http.Request) (did, to string, err error) {
	action := r.PathValue("action")
	if err := h.change(r.Context(), r.PathValue("session"), action, h.actor(r)); err != nil {
		return "", "", err
	}
	h.feed.touchAll() // not all of this has an event
	return sessionTexts[action], "/sessions?did=" + action, nil
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
