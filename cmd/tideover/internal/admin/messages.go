package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/engine"
)

// Messages has the operations on notifiers.
type Messages struct {
	engine   *engine.Engine
	settings func() Settings
	place    func() notify.Place // returns the origin of messages; may be nil
}

// Notifier describes a notifier, which sends messages.
type Notifier struct {
	Name     string
	Workflow string // the workflow whose runs send its messages
	Policy   string // retry policy for sending a message
	NotifierSettings
}

// Notifiers returns the notifiers, sorted by name.
func (m *Messages) Notifiers() (list []Notifier) {
	settings := m.settings()
	for _, flow := range m.engine.Workflows() {
		name, ok := strings.CutPrefix(flow.Name(), control.NotifyPrefix)
		if !ok || !control.Message(flow.Name()) {
			continue
		}
		n := Notifier{Name: name, Workflow: flow.Name(), NotifierSettings: settings.Notifiers[name]}
		for _, s := range flow.Steps() {
			n.Policy = s.Policy
		}
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b Notifier) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Check returns an error if no notifier has the name.
func (m *Messages) Check(name string) error {
	_, err := m.workflow(name)
	return err
}

func (m *Messages) workflow(name string) (*engine.Workflow, error) {
	flow, ok := m.engine.Workflow(control.NotifyPrefix + name)
	if !ok {
		return nil, fmt.Errorf("%w: unknown notifier %q", engine.ErrNotFound, name)
	}
	return flow, nil
}

// SendTest starts a run that sends a test message. The run is retried and listed like the run of
// any other message. by names the user who requests it.
func (m *Messages) SendTest(ctx context.Context, name, by string) error {
	flow, err := m.workflow(name)
	if err != nil {
		return err
	}
	text := notify.TestMessage(name, time.Now(), call(m.place))
	_, err = m.engine.StartRegistered(ctx, flow, text, engine.Source("test by "+by))
	return err
}
