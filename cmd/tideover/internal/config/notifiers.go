package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
)

// notifyPolicy is the policy of a notifier that has none.
const notifyPolicy = "exponential(2s..5m) jitter=full attempts=unlimited total-timeout=1d"

// notifierReader reads the section notify, and the names of notifiers in others.
type notifierReader struct {
	*sharedReader
	policies  *policyReader
	notifiers map[string]*notify.Spec
	runs      []command // of notifiers
}

// section reads the section.
func (r *notifierReader) section(at place) {
	at.EachName("notifier", func(name string, at place) { r.notifiers[name] = r.notifier(name, at) })
}

// notifier reads an entry of the section.
func (r *notifierReader) notifier(name string, at place) *notify.Spec {
	n := &notify.Spec{Name: name, Dir: r.Dir, Base: r.Dir}
	found, ok := strictyaml.Object(at, r.notifyKeys(n))
	r.addNotifyCommand(found["run"], n)
	var kinds []string
	for _, k := range notifyKinds {
		if _, given := found[k]; given {
			kinds = append(kinds, k)
		}
	}
	switch {
	case len(kinds) > 1:
		found[kinds[1]].Bad("can't be combined with %s; a notifier has one kind", kinds[0])
	case len(kinds) == 1:
		n.Kind = kinds[0]
		checkKind(at, found, n)
	case ok: // otherwise the key that is wrong may be meant for it
		at.Bad("the kind is missing; want one of %s", strings.Join(notifyKinds, ", "))
	}
	return n
}

// addNotifyCommand remembers the command of a notifier.
func (r *notifierReader) addNotifyCommand(at place, n *notify.Spec) {
	if at.Node == nil || len(n.RunTexts) != len(at.Node.Items) {
		return // there is none, or it is wrong
	}
	c := command{at: at, inherit: n.Inherit}
	for i, t := range n.RunTexts {
		c.args = append(c.args, usedText{at.Index(i), t})
	}
	for _, e := range n.Env {
		c.env = append(c.env, e.Name)
	}
	r.commands, r.runs = append(r.commands, c), append(r.runs, c)
}

// checkKind checks the keys that depend on the kind.
func checkKind(at place, found map[string]place, n *notify.Spec) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if kind := notifyOnly[name]; kind != "" && kind != n.Kind {
			found[name].Bad("requires the kind %s; this notifier has the kind %s", kind, n.Kind)
		}
	}
	if n.On == nil && found["on"].Node == nil {
		n.On = []notify.Trigger{{Event: "gave-up"}, {Event: "dead-letter"}, {Event: "start-refused"}}
		at.RecordDefault("on", triggers(n.On))
	}
	if n.Kind == notify.KindWebhook && found["method"].Node == nil {
		n.Method = "POST"
		at.RecordDefault("method", n.Method)
	}
	policy, ok := found["policy"]
	if !ok {
		return
	}
	stated := n.Kind != notify.KindEmail && n.Kind != notify.KindRun // a server can state a delay
	if err := n.Policy.Refuse("a notifier", refused(!stated)...); err != nil {
		policy.Bad("%s", oneline.Error(err))
	}
}

// messageText reads a template of a notifier, and tries it.
func (r *notifierReader) messageText(at place, name string, mode template.RefMode) *template.Text {
	t, ok := r.Text(at, name, mode, notify.TemplateFields)
	if !ok {
		return nil
	}
	if err := notify.TryTemplate(t, r.Secrets, r.Dir); err != nil {
		at.Bad("%v", err)
		return nil
	}
	return t
}

// messageCommand reads a command whose arguments are templates of the message.
func (r *notifierReader) messageCommand(at place) []*template.Text {
	return readCommandLine(at, func(at place) *template.Text { return r.messageText(at, "run", template.WithoutRefs) })
}

// names reads a list of names of notifiers.
func (r *notifierReader) names(at place) []string {
	recordItems(at)
	return readDistinct(at, func(at place, name string) (string, bool) {
		known := r.notifiers[name] != nil
		if !known {
			at.Bad("%s", strictyaml.UnknownName("notifier", name, slices.Sorted(maps.Keys(r.notifiers))))
		}
		return name, known
	})
}

func triggers(on []notify.Trigger) string {
	words := make([]string, len(on))
	for i, t := range on {
		words[i] = t.String()
	}
	return strings.Join(words, ",")
}
