package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// Handlers returns the handlers that send messages.
func (o *Outbox) Handlers() map[string]engine.Handler {
	return map[string]engine.Handler{
		handlerSend:   o.handle(stored),
		handlerGiveUp: o.handle(o.giveUp),
	}
}

// sent is the output of a message, and the state that an attempt leaves for the next.
type sent struct {
	Sent     bool            `json:"sent"`
	Held     string          `json:"held,omitempty"`     // why it was not sent
	Admitted *notify.Message `json:"admitted,omitempty"` // after the rate limit, which is applied once
}

// handle returns a handler that makes one attempt to send a message.
func (o *Outbox) handle(message func(*engine.Task) (notify.Message, error)) engine.Handler {
	return func(ctx context.Context, t *engine.Task) ([]byte, error) {
		var a args
		if err := json.Unmarshal(t.Args, &a); err != nil {
			return nil, retry.Permanent(fmt.Errorf("decoding the stored notifier: %w", err))
		}
		n, err := o.find(a.Notifier)
		if err != nil {
			return nil, err
		}
		m, held, err := n.admit(t, message)
		switch {
		case err != nil:
			return nil, retry.Permanent(err)
		case held != notify.NotHeld:
			return json.Marshal(sent{Held: held.String()})
		}
		if err := n.sender.Send(ctx, m); err != nil {
			if e, ok := errors.AsType[*notify.SendError](err); ok {
				m = e.Progress() // don't send again to recipients that have it
			}
			return nil, engine.Keep(steps.Postpone(err, t), sent{Admitted: &m})
		}
		return json.Marshal(sent{Sent: true})
	}
}

// admit returns the message after the rate limit, or why it is held back.
func (n *notifier) admit(t *engine.Task, message func(*engine.Task) (notify.Message, error)) (notify.Message, notify.Held, error) {
	var before sent
	if json.Unmarshal(t.Progress, &before) == nil && before.Admitted != nil {
		return *before.Admitted, notify.NotHeld, nil
	}
	m, err := message(t)
	if err != nil {
		return m, notify.NotHeld, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m, held := n.gate.Admit(m, time.Now())
	return m, held, nil
}

// stored returns the message that a run was started with.
func stored(t *engine.Task) (m notify.Message, err error) {
	if err := json.Unmarshal(t.Input, &m); err != nil {
		return m, fmt.Errorf("decoding the stored message: %w", err)
	}
	return m, nil
}

// giveUp returns the message about a run that gave up.
func (o *Outbox) giveUp(t *engine.Task) (notify.Message, error) {
	var g engine.GaveUp
	if err := json.Unmarshal(t.Input, &g); err != nil {
		return notify.Message{}, fmt.Errorf("decoding the input of the run: %w", err)
	}
	ev := retry.Event{
		Kind: retry.GaveUp, Time: t.Created, Name: subject(g.Workflow), Run: g.Run, Step: g.Step, Attempt: g.Attempts,
		Elapsed: t.Created.Sub(g.Created), Err: errors.New(g.Error),
	}
	ev.Reason, _ = retry.ParseReason(g.Reason)
	if ev.Step == "session" {
		ev.Step = ev.Name // a session is its own step
	}
	m, _ := notify.Compose(ev, o.place())
	return m, nil
}
