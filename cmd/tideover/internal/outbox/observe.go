package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// startTime is how long the engine may take to accept a message: in a cluster the
// shard of the message may be without an owner for a while. Nobody waits for one that
// it can't.
const startTime = 30 * time.Second

// maxWaits bounds what is remembered of sessions that wait.
const maxWaits = 4096

// worthTelling is how long a wait must have been for its end to be news.
const worthTelling = time.Minute

// waitState is a wait of a session.
type waitState struct {
	delay time.Duration
	until time.Time
}

// Observe reads the event stream, and starts the messages that somebody wants.
func (o *Outbox) Observe(ev retry.Event) {
	if untold(ev) {
		return
	}
	o.mu.Lock()
	m, ok := o.compose(ev)
	var list []*notifier
	if ok {
		list = o.targets(ev.Name, m)
	}
	e := o.engine
	o.mu.Unlock()
	if e == nil || len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for _, n := range list {
		// Read twice, it is the same message. That it could not be accepted is what
		// the engine says loudly of itself.
		_, _ = e.StartRegistered(ctx, n.flow, m, engine.Key(prefix+n.Name+"/"+m.ID), engine.Source("event "+ev.Kind.String()))
	}
}

// recoverable is how long ago a wait may have begun whose message [Outbox.Recover] sends, unless the engine keeps
// messages for a shorter time.
const recoverable = 24 * time.Hour

// Recover reads the wait of a session from its run, when a process goes on with what another one has left. That one may have
// been killed after the wait was stored and before its message was. A message that is stored is not sent again.
func (o *Outbox) Recover(run *engine.Info) {
	ev, ok := waitingEvent(run)
	if !ok || !ev.Until.After(time.Now()) { // if it is over, the session goes on at any moment
		return
	}
	// An engine that has forgotten the message would send it again.
	if time.Since(ev.Time) < min(recoverable, o.retention/2) {
		o.Observe(ev)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.compose(ev) // its end is told
}

// waitingEvent returns the event of the wait that the run of a session is in. It is false if there is none, or if someone has
// changed it.
func waitingEvent(run *engine.Info) (ev retry.Event, ok bool) {
	if run.State != engine.StateWaiting || len(run.Steps) != 1 || len(run.Steps[0].Attempts) == 0 {
		return ev, false
	}
	step := &run.Steps[0]
	last := &step.Attempts[len(step.Attempts)-1]
	if last.Ended == nil || last.Wait == nil || last.Wait.Moved != "" || last.Wait.Woken != "" {
		return ev, false
	}
	ev = retry.Event{
		Kind: retry.Waiting, Time: *last.Ended, Name: run.Workflow, Run: run.ID, Step: step.Name, Attempt: last.Number,
		Delay: last.Wait.Delay, Until: last.Wait.Until,
	}
	if p, err := retry.Parse(step.Policy); err == nil {
		ev.Attempts = cmp.Or(p.Attempts, 1)
	}
	if last.Wait.By == retry.ByServer.String() {
		ev.By = retry.ByServer
	}
	if last.Outcome == "failed" {
		ev.Err = errors.New(last.Error)
	} else {
		ev.Note = last.Error
	}
	return ev, true
}

// compose makes the message of an event.
func (o *Outbox) compose(ev retry.Event) (notify.Message, bool) {
	workflow := ev.Name
	ev.Name = subject(workflow)
	if !strings.HasPrefix(workflow, session.Prefix) {
		return notify.Compose(ev, o.place())
	}
	if ev.Step != "" {
		ev.Step = ev.Name // a session is its own step
	}
	switch ev.Kind {
	case retry.AttemptFailed:
		o.failed.run, o.failed.err = ev.Run, ev.Err
	case retry.Waiting:
		if ev.Delay < time.Millisecond { // such as a hand-over: something follows at once, which is told
			return notify.Message{}, false
		}
		if len(o.waits) < maxWaits {
			o.waits[ev.Run] = waitState{ev.Delay, ev.Until}
		}
		ev.Attempt = 0 // of which not all count
		switch {
		case ev.Note != "":
			ev.Err = errors.New(ev.Note)
		case ev.Err == nil && o.failed.run == ev.Run: // which is what it waits for
			ev.Err = o.failed.err
		}
	case retry.Resumed: // by hand, which is told as such
		if w, waited := o.waits[ev.Run]; waited && ev.Step == "" && w.until.After(ev.Time) {
			return notify.Message{}, false // what is left of its wait goes on, and not the session
		}
		delete(o.waits, ev.Run)
	case retry.Progressed: // a command begins; an attempt may only find that it is quiet hours
		if l := session.ReadMemo([]byte(ev.Note)).Limit; l != nil {
			return notify.ComposeLimit(ev, screenLimit(l), o.place()), true
		}
		if m, ok := o.handedOver(ev); ok {
			delete(o.waits, ev.Run)
			return m, true
		}
		w, waited := o.waits[ev.Run]
		delete(o.waits, ev.Run)
		if !waited || w.delay < worthTelling {
			return notify.Message{}, false
		}
		ev.Kind, ev.Note = retry.Resumed, ""
		m, ok := notify.Compose(ev, o.place())
		m.Text = fmt.Sprintf("its command is run again, after a wait of %s", w.delay.Round(time.Second))
		return m, ok
	case retry.Succeeded, retry.GaveUp, retry.Canceled:
		delete(o.waits, ev.Run)
		if ev.Kind == retry.Succeeded && ev.Attempt > 1 {
			ev.Attempt = 0 // that it is done is not that it works again
		}
	default:
	}
	return notify.Compose(ev, o.place())
}

// screenLimit returns a limit on the screen of a session as messages tell it.
func screenLimit(l *session.ScreenLimit) notify.ScreenLimit {
	return notify.ScreenLimit{Line: l.Line, Until: l.Until, At: l.At, Typed: l.Typed, Final: l.Reason == detect.Terminal.String()}
}

// handedOver makes the message that another assistant has taken a session over, or that the session's own one
// goes on. It is the same message for all events of the turn.
func (o *Outbox) handedOver(ev retry.Event) (m notify.Message, ok bool) {
	memo := session.ReadMemo([]byte(ev.Note))
	turn, h := memo.CurrentTurn(), memo.Handover
	if turn == nil || h == nil {
		return m, false
	}
	ev.Time, ev.Note, ev.Attempt, ev.Kind = turn.From, "", 0, retry.Resumed
	if n := len(memo.Turns); !turn.Fallback {
		if n < 2 || !memo.Turns[n-2].Fallback {
			return m, false
		}
		m, ok = notify.Compose(ev, o.place())
		m.Text = fmt.Sprintf("%s goes on after its limit; meanwhile it was handed over to %s", turn.Assistant, memo.Turns[n-2].Assistant)
		return m, ok
	}
	ev.Kind, ev.Delay, ev.Until, ev.By = retry.Waiting, h.Back.Sub(turn.From), h.Back, retry.ByServer
	if memo.Last != nil && memo.Last.Line != "" {
		ev.Err = errors.New(memo.Last.Line)
	}
	m, ok = notify.Compose(ev, o.place())
	m.Title = m.Subject + " is handed over to " + turn.Assistant
	return m, ok
}
