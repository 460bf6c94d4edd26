package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// startTime limits how long the engine may take to accept a message: in a cluster, the shard of the
// message may have no owner for a while. After that the message is dropped.
const startTime = 30 * time.Second

// maxWaits limits the number of waits that are tracked.
const maxWaits = 4096

// worthTelling is the shortest wait after which a message says that the session continues.
const worthTelling = time.Minute

// waitState is a wait of a session.
type waitState struct {
	delay  time.Duration
	until  time.Time
	probes bool // for a limit without a stated end
}

// Observe processes an event: it starts a run for each message about the event.
func (o *Outbox) Observe(ev retry.Event) {
	if withoutMessage(ev) {
		return
	}
	o.mu.Lock()
	if isOrdinarySuccess(ev) && !o.wantsSuccess() { // most runs: the message need not be composed
		o.mu.Unlock()
		return
	}
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
		// The key deduplicates the message if the event is read twice. The engine logs errors
		// itself.
		_, _ = e.StartRegistered(ctx, n.flow, m, engine.Key(prefix+n.Name+"/"+m.ID), engine.Source("event "+ev.Kind.String()))
	}
}

// isOrdinarySuccess reports whether a run has succeeded that is not the run of a session.
func isOrdinarySuccess(ev retry.Event) bool {
	return ev.Kind == retry.Succeeded && ev.Step == "" && !strings.HasPrefix(ev.Name, session.Prefix)
}

// wantsSuccess reports whether a notifier sends messages about runs that succeeded.
func (o *Outbox) wantsSuccess() bool {
	for _, n := range o.notifiers {
		if slices.ContainsFunc(n.On, func(t notify.Trigger) bool { return t.Event == string(notify.Succeeded) }) {
			return true
		}
	}
	return false
}

// recoverable is the greatest age of an event for which [Outbox.Recover] sends the message. Half of
// the retention limits the age, too.
const recoverable = 24 * time.Hour

// Recover stores the message about the current wait, or the success, of a session's run, unless it is
// stored already. The process that stored the run may have been killed before it stored the message, or
// may not have observed the event yet.
func (o *Outbox) Recover(run *engine.Info) {
	ev, ok := waitingEvent(run)
	if run.State == engine.StateSucceeded && run.Ended != nil {
		ev, ok = retry.Event{Kind: retry.Succeeded, Time: *run.Ended, Name: run.Workflow, Run: run.ID, Elapsed: run.Ended.Sub(run.Created)}, true
	}
	if !ok || ev.Kind == retry.Waiting && !ev.Until.After(time.Now()) { // the wait is over, and the session continues at any moment
		return
	}
	// For an older event the engine may have deleted the message, and would send it again.
	if time.Since(ev.Time) < min(recoverable, o.retention/2) {
		o.Observe(ev)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.compose(ev) // only record the wait, for the message about its end
}

// waitingEvent returns the event of the current wait of a session's run; false if there is none, or
// if an operator has changed it.
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

// compose returns the message for an event; false if there is none.
func (o *Outbox) compose(ev retry.Event) (notify.Message, bool) {
	workflow := ev.Name
	ev.Name = subject(workflow)
	if !strings.HasPrefix(workflow, session.Prefix) {
		return notify.Compose(ev, o.place())
	}
	if ev.Step != "" {
		ev.Step = ev.Name // a session has one step: do not name it in the text
	}
	switch ev.Kind {
	case retry.AttemptFailed:
		o.failed.run, o.failed.err = ev.Run, ev.Err
	case retry.Waiting:
		return o.composeWait(ev)
	case retry.Resumed: // by an operator
		if w, waited := o.waits[ev.Run]; waited && ev.Step == "" && w.until.After(ev.Time) {
			return notify.Message{}, false // the session still has to wait until w.until
		}
		delete(o.waits, ev.Run)
	case retry.Progressed: // a command starts; the start of an attempt is not enough, because it may end at once in quiet hours
		return o.composeProgress(ev)
	case retry.Succeeded, retry.GaveUp, retry.Canceled:
		delete(o.waits, ev.Run)
		if ev.Kind == retry.Succeeded && ev.Step == "" {
			ev.Attempt = 0 // the session has completed; with an attempt, the message would say that it recovered
		}
	default:
	}
	return notify.ComposeSession(ev, o.place())
}

// composeWait returns the message for the wait of a session, and records the wait.
func (o *Outbox) composeWait(ev retry.Event) (notify.Message, bool) {
	if ev.Delay < time.Millisecond { // for example a handover: the next event follows at once and has its own message
		return notify.Message{}, false
	}
	probes := session.IsProbeWait(ev.Note)
	told := probes && o.waits[ev.Run].probes // the first wait of a limit has the message
	if len(o.waits) < maxWaits {
		o.waits[ev.Run] = waitState{ev.Delay, ev.Until, probes}
	}
	if told {
		return notify.Message{}, false
	}
	ev.Attempt = 0 // do not print it: some attempts of a session do not count
	switch {
	case ev.Note != "":
		ev.Err = errors.New(ev.Note)
	case ev.Err == nil && o.failed.run == ev.Run: // the failure that caused the wait
		ev.Err = o.failed.err
	}
	return notify.ComposeSession(ev, o.place())
}

// composeProgress returns the message for a session whose memo has changed: a limit on its screen, a
// handover, or the start of a command after a long wait.
func (o *Outbox) composeProgress(ev retry.Event) (notify.Message, bool) {
	memo := session.ReadMemo([]byte(ev.Note))
	if l := memo.Limit; l != nil {
		return notify.ComposeLimit(ev, screenLimit(l), o.place()), true
	}
	if m, ok := o.handedOver(ev); ok {
		delete(o.waits, ev.Run)
		return m, true
	}
	w, waited := o.waits[ev.Run]
	if w.probes && !memo.LimitSince.IsZero() {
		return notify.Message{}, false // the command is a probe: it may stop at the limit again
	}
	delete(o.waits, ev.Run)
	if !waited || w.delay < worthTelling {
		return notify.Message{}, false
	}
	ev.Kind, ev.Note = retry.Resumed, ""
	m, ok := notify.ComposeSession(ev, o.place())
	if m.Text = fmt.Sprintf("its command runs again after a wait of %s", w.delay.Round(time.Second)); w.probes {
		m.Text = "its command runs again: the limit is over"
	}
	return m, ok
}

// screenLimit converts a limit on the screen of a session to the type of package notify.
func screenLimit(l *session.ScreenLimit) notify.ScreenLimit {
	return notify.ScreenLimit{Line: l.Line, Until: l.Until, At: l.At, Typed: l.Typed, Final: l.Reason == detect.Terminal.String(), Asks: l.Asks}
}

// handedOver returns the message that a fallback assistant has taken the session over, or that the
// session's own assistant continues. ok is false if neither happened. A turn is the time in which
// one assistant works; all events of a turn give the same message.
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
		m, ok = notify.ComposeSession(ev, o.place())
		m.Text = fmt.Sprintf("%s continues after its limit; meanwhile %s worked", turn.Assistant, memo.Turns[n-2].Assistant)
		return m, ok
	}
	ev.Kind, ev.Delay, ev.Until, ev.By = retry.Waiting, h.Back.Sub(turn.From), h.Back, retry.ByServer
	if memo.Last != nil && memo.Last.Line != "" {
		ev.Err = errors.New(memo.Last.Line)
	}
	m, ok = notify.ComposeSession(ev, o.place())
	m.Title = m.Subject + " was handed over to " + turn.Assistant
	return m, ok
}
