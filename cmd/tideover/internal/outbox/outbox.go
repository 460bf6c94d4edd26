// Package outbox tells people what happened, by way of the engine: a message is a
// run, so that it is sent in the end even if the process is killed first, or the
// receiver is away. That a run gave up and that somebody is to be told are one
// record. A notifier that does not work holds up nothing but its own messages.
package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
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

// parallel is how many messages of a notifier are sent at once.
const parallel = 4

// ErrUnknown says that there is no notifier of the name any more.
var ErrUnknown = errors.New("is not configured any more")

// args is what a step of a message is told.
type args struct {
	Notifier string `json:"notifier"`
}

// Outbox has the notifiers of a configuration.
type Outbox struct {
	place     func() notify.Place
	retention time.Duration // how long the engine keeps messages that were sent

	mu        sync.Mutex
	engine    *engine.Engine // nil before Attach
	notifiers map[string]*notifier
	told      map[string][]string  // notifiers that the alarm of a workflow tells
	listeners map[string][]string  // notifiers of a session, by its workflow
	waits     map[string]waitState // of runs of sessions
	failed    failure              // the last of a session
}

// failure is why an attempt of a session failed. What follows it is told next.
type failure struct {
	run string
	err error
}

// notifier is one of the configuration.
type notifier struct {
	*notify.Spec
	sender *notify.Sender
	flow   *engine.Workflow

	mu   sync.Mutex
	gate *notify.Gate
}

// defaultRetention is how long an engine keeps ended runs unless its configuration says otherwise.
const defaultRetention = 14 * 24 * time.Hour

// Config is what an outbox is made of.
type Config struct {
	Notifiers []*notify.Spec
	Env       notify.Env
	Place     func() notify.Place // where messages come from
	Retention time.Duration       // how long the engine keeps ended runs; 0 means its default
}

// New returns an outbox with the notifiers.
func New(c Config) (*Outbox, error) {
	o := &Outbox{
		place: c.Place, retention: cmp.Or(c.Retention, defaultRetention), notifiers: map[string]*notifier{}, told: map[string][]string{}, listeners: map[string][]string{}, waits: map[string]waitState{},
	}
	for _, spec := range c.Notifiers {
		sender, err := notify.New(spec, c.Env)
		if err != nil {
			return nil, err
		}
		flow, err := engine.NewWorkflow(prefix+spec.Name, engine.Call("send", handlerSend, args{spec.Name},
			engine.WithPolicy(spec.Policy), engine.Concurrency(parallel)))
		if err != nil {
			return nil, err
		}
		o.notifiers[spec.Name] = &notifier{Spec: spec, sender: sender, flow: flow, gate: notify.NewGate(spec)}
	}
	return o, nil
}

// Become takes over everything that another one has, of another configuration. What
// notifiers have told lately is remembered.
func (o *Outbox) Become(next *Outbox) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, n := range next.notifiers {
		if was := o.notifiers[name]; was != nil && was.AtMost == n.AtMost && was.Dedupe == n.Dedupe {
			n.gate = was.gate
		}
	}
	for workflow, names := range o.listeners {
		if _, there := next.listeners[workflow]; !there { // a session that goes on
			next.listeners[workflow], next.told[workflow] = names, o.told[workflow]
		}
	}
	o.notifiers, o.told, o.listeners = next.notifiers, next.told, next.listeners
}

// Attach gives the outbox the engine that keeps its messages.
func (o *Outbox) Attach(e *engine.Engine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.engine = e
}

// Workflows returns the workflows of messages.
func (o *Outbox) Workflows() []*engine.Workflow {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*engine.Workflow
	for _, name := range slices.Sorted(maps.Keys(o.notifiers)) {
		list = append(list, o.notifiers[name].flow)
	}
	return list
}

// Alarm returns the workflow that tells the notifiers when a run of another
// workflow gives up, or nil if there is nobody to tell.
func (o *Outbox) Alarm(workflow string, names []string) (*engine.Workflow, error) {
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // nobody is an answer
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var parts []engine.Part
	for _, name := range names {
		n := o.notifiers[name]
		if n == nil {
			return nil, fmt.Errorf("there is no notifier %q", name)
		}
		parts = append(parts, engine.Call(name, handlerGiveUp, args{name}, engine.WithPolicy(n.Policy)))
	}
	o.told[workflow] = names
	return engine.NewWorkflow(workflow+giveUpSuffix, parts...)
}

// Listen has the notifiers told of what a session does, as far as they want that,
// and returns the alarm for its end.
func (o *Outbox) Listen(s *session.Spec, names []string) (*engine.Workflow, error) {
	workflow := session.Prefix + s.Name
	var alarmed []string
	o.mu.Lock()
	for _, name := range names {
		n := o.notifiers[name]
		if n == nil {
			o.mu.Unlock()
			return nil, fmt.Errorf("there is no notifier %q", name)
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

// subject returns the name that people know a workflow, or a provider, by.
func subject(name string) string {
	if provider, ok := strings.CutPrefix(name, gateway.EventPrefix); ok {
		return "provider " + provider
	}
	return strings.TrimPrefix(name, session.Prefix)
}

// untold reports whether nobody is told of an event. Those of a message itself are
// not: a notifier that does not work would tell of itself for ever. Nor are those of
// requests that belong to no run: of a provider that is down there is one message,
// and not one for each of its callers.
func untold(ev retry.Event) bool {
	ofMany := ev.Kind == retry.BreakerOpened || ev.Kind == retry.BreakerClosed || ev.Kind == retry.StormBegan || ev.Kind == retry.StormEnded ||
		ev.Kind == retry.StartRefused
	return strings.HasPrefix(ev.Name, prefix) || strings.HasSuffix(ev.Name, giveUpSuffix) || ev.Run == "" && !ofMany
}

// targets returns the notifiers that are told of a message about the workflow.
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
		if n == nil || over && slices.Contains(o.told[workflow], name) || !o.wants(n, workflow, m) {
			continue
		}
		list = append(list, n)
	}
	return list
}

// wants reports whether a notifier is told of a message. One that the workflow names is
// told of a refused start of it, whatever its own list says: like a death, it means that
// work was not done.
func (o *Outbox) wants(n *notifier, workflow string, m notify.Message) bool {
	return notify.Wants(n.On, m) || m.Event == notify.StartRefused && slices.Contains(o.told[workflow], n.Name)
}

// find returns a notifier by its name.
func (o *Outbox) find(name string) (*notifier, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.notifiers[name]; n != nil {
		return n, nil
	}
	return nil, retry.Permanent(fmt.Errorf("notifier %q %w; there are %s", name, ErrUnknown,
		cmp.Or(strings.Join(slices.Sorted(maps.Keys(o.notifiers)), ", "), "none")))
}
