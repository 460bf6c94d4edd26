// Package outbox sends notifications through the engine. Each message is a run, so that it is sent
// even if the process is killed first or the receiver is down. When a run gives up, the engine
// stores its end and the start of the message as one record. A failing notifier delays only its own
// messages.
package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

// The names of the handlers and workflows of messages.
const (
	handlerSend   = "notify"
	handlerGiveUp = "notify-give-up"
	prefix        = "notify."
	giveUpSuffix  = ".on-give-up"
)

// ErrUnknown is the error of a stored message whose notifier is no longer configured.
var ErrUnknown = errors.New("is no longer configured")

// args are the stored arguments of a message's step.
type args struct {
	Notifier string `json:"notifier"`
}

// Outbox starts and sends the messages of the notifiers of a configuration.
type Outbox struct {
	place     func() notify.Place
	retention time.Duration // how long the engine stores sent messages

	mu        sync.Mutex
	engine    *engine.Engine // nil before Attach
	notifiers map[string]*notifier
	alarmed   map[string][]string  // by workflow: notifiers that its Alarm workflow uses when a run gives up
	listeners map[string][]string  // by workflow of a session: notifiers that get its events
	waits     map[string]waitState // by run of a session: its current wait
	failed    failure              // last failure of any session
}

// failure is the error of a session's attempt, for the message about the wait that follows.
type failure struct {
	run string
	err error
}

// notifier is a notifier of the configuration.
type notifier struct {
	*notify.Spec
	sender *notify.Sender
	flow   *engine.Workflow

	mu   sync.Mutex
	gate *notify.Gate
}

// defaultRetention is the default of server.retention.
const defaultRetention = 14 * 24 * time.Hour

// Config configures an outbox.
type Config struct {
	Notifiers []*notify.Spec
	Env       notify.Env
	Place     func() notify.Place // describes this process, for texts and links in messages
	Retention time.Duration       // how long the engine keeps ended runs; 0 means its default
}

// New returns an outbox with the notifiers.
func New(c Config) (*Outbox, error) {
	o := &Outbox{
		place: c.Place, retention: cmp.Or(c.Retention, defaultRetention), notifiers: map[string]*notifier{}, alarmed: map[string][]string{}, listeners: map[string][]string{}, waits: map[string]waitState{},
	}
	for _, spec := range c.Notifiers {
		sender, err := notify.New(spec, c.Env)
		if err != nil {
			return nil, err
		}
		flow, err := engine.NewWorkflow(prefix+spec.Name, engine.Call("send", handlerSend, args{spec.Name},
			engine.WithPolicy(spec.Policy), engine.Concurrency(1)))
		if err != nil {
			return nil, err
		}
		o.notifiers[spec.Name] = &notifier{Spec: spec, sender: sender, flow: flow, gate: notify.NewGate(spec)}
	}
	return o, nil
}

// Become replaces the notifiers by those of next, which is made from a new configuration. A
// notifier with unchanged limits keeps the counts of its rate limit.
func (o *Outbox) Become(next *Outbox) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, n := range next.notifiers {
		if was := o.notifiers[name]; was != nil && was.AtMost == n.AtMost && was.Dedupe == n.Dedupe {
			n.gate = was.gate
		}
	}
	for workflow, names := range o.listeners {
		if _, there := next.listeners[workflow]; !there { // a session that next does not have, but that may still run
			next.listeners[workflow], next.alarmed[workflow] = names, o.alarmed[workflow]
		}
	}
	o.notifiers, o.alarmed, o.listeners = next.notifiers, next.alarmed, next.listeners
}

// Attach sets the engine that stores the messages.
func (o *Outbox) Attach(e *engine.Engine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.engine = e
}

// Workflows returns the workflows whose runs are messages, one for each notifier.
func (o *Outbox) Workflows() []*engine.Workflow {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*engine.Workflow
	for _, name := range slices.Sorted(maps.Keys(o.notifiers)) {
		list = append(list, o.notifiers[name].flow)
	}
	return list
}

// Alarm returns the workflow that the engine starts when a run of the given workflow gives up. It
// sends a message with each of the named notifiers. Alarm returns nil if names is empty.
func (o *Outbox) Alarm(workflow string, names []string) (*engine.Workflow, error) {
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // documented
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var parts []engine.Part
	for _, name := range names {
		n := o.notifiers[name]
		if n == nil {
			return nil, fmt.Errorf("unknown notifier %q", name)
		}
		parts = append(parts, engine.Call(name, handlerGiveUp, args{name}, engine.WithPolicy(n.Policy)))
	}
	o.alarmed[workflow] = names
	return engine.NewWorkflow(workflow+giveUpSuffix, parts...)
}

// Listen makes the named notifiers send messages about a session. Each notifier selects the events
// that it sends messages about. Listen returns the workflow that sends the messages when the
// session gives up, as [Outbox.Alarm] does.
func (o *Outbox) Listen(s *session.Spec, names []string) (*engine.Workflow, error) {
	workflow := session.Prefix + s.Name
	var alarmed []string
	o.mu.Lock()
	for _, name := range names {
		n := o.notifiers[name]
		if n == nil {
			o.mu.Unlock()
			return nil, fmt.Errorf("unknown notifier %q", name)
		}
		if slices.ContainsFunc(n.On, func(t notify.Trigger) bool {
			return t.Event == string(notify.GaveUp) || t.Event == string(notify.DeadLetter)
		}) {
			alarmed = append(alarmed, name)
		}
	}
	o.listeners[workflow] = names
	o.mu.Unlock()
	return o.Alarm(workflow, alarmed)
}

// subject returns the display name of a workflow or a provider.
func subject(name string) string {
	if provider, ok := strings.CutPrefix(name, gateway.EventPrefix); ok {
		return "provider " + provider
	}
	return strings.TrimPrefix(name, session.Prefix)
}

// withoutMessage reports whether an event never has a message. It is true for events of the
// workflows of messages, because a failing notifier would send messages about itself forever. It is
// also true for requests without a run: a provider that is down has one message, not one per
// request.
func withoutMessage(ev retry.Event) bool {
	ofMany := ev.Kind == retry.BreakerOpened || ev.Kind == retry.BreakerClosed || ev.Kind == retry.StormBegan || ev.Kind == retry.StormEnded ||
		ev.Kind == retry.StartRefused
	return strings.HasPrefix(ev.Name, prefix) || strings.HasSuffix(ev.Name, giveUpSuffix) || ev.Run == "" && !ofMany
}

// targets returns the notifiers that send the message m about a run of the workflow.
func (o *Outbox) targets(workflow string, m notify.Message) (list []*notifier) {
	names, ofSession := o.listeners[workflow]
	if !ofSession {
		if strings.HasPrefix(workflow, session.Prefix) {
			return nil
		}
		names = slices.Sorted(maps.Keys(o.notifiers))
	}
	for _, name := range names {
		n := o.notifiers[name]
		over := m.Event == notify.GaveUp || m.Event == notify.DeadLetter
		if n == nil || over && slices.Contains(o.alarmed[workflow], name) || !o.wants(n, workflow, m) {
			continue
		}
		list = append(list, n)
	}
	return list
}

// wants reports whether a notifier sends a message. A notifier that the workflow names always sends
// messages about rejected starts, because work was not done.
func (o *Outbox) wants(n *notifier, workflow string, m notify.Message) bool {
	return notify.Wants(n.On, m) || m.Event == notify.StartRefused && slices.Contains(o.alarmed[workflow], n.Name)
}

// find returns a notifier by its name. If there is none, the error is permanent and wraps
// ErrUnknown.
func (o *Outbox) find(name string) (*notifier, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.notifiers[name]; n != nil {
		return n, nil
	}
	return nil, retry.Permanent(fmt.Errorf("notifier %q %w; configured notifiers: %s", name, ErrUnknown,
		cmp.Or(strings.Join(slices.Sorted(maps.Keys(o.notifiers)), ", "), "none")))
}

// Handlers returns the handlers that send messages.
func (o *Outbox) Handlers() map[string]engine.Handler {
	return map[string]engine.Handler{
		handlerSend:   o.handle(stored),
		handlerGiveUp: o.handle(o.giveUp),
	}
}

// sent is the output of a run that sends a message, and the state that a failed attempt passes to
// the next one.
type sent struct {
	Sent     bool            `json:"sent"`
	Held     string          `json:"held,omitempty"`     // why the message was held back and not sent
	Admitted *notify.Message `json:"admitted,omitempty"` // message that passed the gate, which counts a message only once
}

// handle returns a handler that makes one attempt to send a message. The function message returns
// the message of the run.
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
		o.mu.Lock()
		e := o.engine
		o.mu.Unlock()
		if older := oldestWaiting(ctx, e, n); older != nil && older.ID != t.Run && older.Created.Before(t.Created) {
			return nil, engine.Snooze(orderCheck(t.Total), "an older message is sent first")
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
				m = e.Progress() // skips the recipients that already got it
			}
			return nil, engine.Keep(steps.Postpone(err, t), sent{Admitted: &m})
		}
		if next := oldestWaiting(ctx, e, n); next != nil {
			_ = e.Wake(ctx, next.ID, "the notifier works") // on an error, it is sent at the end of its wait
		}
		return json.Marshal(sent{Sent: true})
	}
}

// oldestWaiting returns the oldest message of the notifier that could not be sent yet; nil if there is
// none, or if that is unknown. e is nil before [Outbox.Attach].
func oldestWaiting(ctx context.Context, e *engine.Engine, n *notifier) *engine.Info {
	if e == nil {
		return nil
	}
	page, err := e.List(ctx, engine.Filter{Workflow: n.flow.Name(), States: []string{engine.StateWaiting}, Order: "oldest", Limit: 1000, Fresh: true})
	if err != nil || len(page.Runs) == 0 {
		return nil
	}
	oldest := slices.MinFunc(page.Runs, func(a, b engine.Info) int { return a.Created.Compare(b.Created) })
	return &oldest
}

// orderCheck returns the time until a message checks again whether the older ones are sent, after it
// has made this many attempts. Usually the message before it wakes it earlier.
func orderCheck(attempts int) time.Duration {
	return min(time.Second<<min(attempts, 6), time.Minute)
}

// admit applies the rate limit and the deduplication of the notifier, its gate, to the message. It
// returns the message to send, to which the gate may have added a text, or why the message is held
// back. A message that an earlier attempt of the run admitted is admitted again.
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
		Kind: retry.GaveUp, Time: t.Created, Name: subject(g.Workflow), Run: g.Run, Step: g.Step, Attempt: cmp.Or(g.StepAttempts, g.Attempts),
		Elapsed: t.Created.Sub(g.Created), Err: errors.New(g.Error),
	}
	ev.Reason, _ = retry.ParseReason(g.Reason)
	if ev.Step == "session" {
		ev.Step = ev.Name // a session has one step: do not name it in the text
	}
	m, _ := notify.Compose(ev, o.place())
	return m, nil
}
