package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// The kinds of notifiers.
const (
	NotifyNtfy    = "ntfy"
	NotifySlack   = "slack"
	NotifyWebhook = "webhook"
	NotifyEmail   = "email"
	NotifyRun     = "run"
)

// notifyPolicy is how a message is retried unless said.
const notifyPolicy = "exponential(2s..5m) jitter=full attempts=unlimited total-timeout=1d"

// Notifier is a way to tell somebody what happened.
type Notifier struct {
	Name    string
	Kind    string        // NotifyNtfy…; says which of the fields below are set
	On      []Trigger     // what it tells of
	AtMost  Rate          // zero means no limit
	Dedupe  time.Duration // the same event of the same subject is told once in it; 0 means always
	Timeout time.Duration // of one attempt
	Policy  retry.Policy  // of the attempts

	URL      *template.SecretText // ntfy: with the topic; slack; webhook
	Token    *template.SecretText // ntfy: nil means none
	Priority string               // ntfy: empty means the server's default
	Tags     []string             // ntfy

	Method  string                 // webhook
	Headers []template.NamedSecret // webhook, sorted by name

	Email *Email

	Dir string                 // run: working folder, absolute
	Env []template.NamedSecret // run, sorted by name

	Inherit guard.Inherit // run: variables of the server that the command gets, beside those of Server.Inherit

	body *template.Text   // webhook: nil means the message's JSON
	run  []*template.Text // run: the command and its arguments
	base string           // where relative paths of references start
}

// Email is a mail server and who writes to whom.
type Email struct {
	To       []*mail.Address
	From     *mail.Address
	Server   string               // host:port
	Username *template.SecretText // nil means that the server asks for none
	Password *template.SecretText
	TLS      string // "starttls", "implicit" or "none"
}

// The values that the templates of a notifier see, of a message that has
// everything, of one that has as little of it as there can be, and of one that has
// nothing. Templates are tried with all of them.
var (
	fullMessage = map[string]any{
		"id": "5f0c3a", "event": "gave-up", "subject": "nightly", "title": "nightly gave up", "text": "5 attempts in 42m",
		"run": "01K9", "step": "fetch", "attempt": 5, "attempts": 5, "reason": "attempts", "line": "exit code 1",
		"until": "2026-01-02T15:04:05Z", "url": "http://127.0.0.1:7878/runs/01K9", "time": "2026-01-02T15:04:05Z", "host": "box",
	}
	emptyMessage = map[string]any{
		"id": "", "event": "", "subject": "", "title": "", "text": "", "run": "", "step": "", "attempt": 0, "attempts": 0,
		"reason": "", "line": "", "until": "", "url": "", "time": "", "host": "",
	}
	shortMessage = map[string]any{
		"id": "5f0c3a", "event": "waiting", "subject": "s", "title": "t", "text": "t", "run": "1", "step": "s", "attempt": 1, "attempts": retry.Unlimited,
		"reason": "r", "line": "l", "until": "2026-01-02T15:04:05Z", "url": "u", "time": "2026-01-02T15:04:05Z", "host": "h",
	}
	messageRoots = template.Fields{First: MessageFields(), Quotes: []string{"line", "text"}}
)

// MessageFields returns the fields that the templates of a notifier may use,
// sorted.
func MessageFields() []string { return slices.Sorted(maps.Keys(fullMessage)) }

// Body writes the body of a webhook out. It is false when the notifier has no
// template for it.
func (n *Notifier) Body(fields map[string]any, r secret.Resolver) (body secret.String, ok bool, err error) {
	if n.body == nil {
		return body, false, nil
	}
	out, err := n.body.Render(&template.Scope{Root: fields, Secrets: r, Dir: n.base})
	if err != nil {
		err = fmt.Errorf("notify %q: body: %w", n.Name, err)
	}
	return secret.New(out), true, err
}

// Argv returns the command and its arguments. What can't be written out is empty,
// and the error says why.
func (n *Notifier) Argv(fields map[string]any) ([]string, error) {
	argv := make([]string, len(n.run))
	var errs []error
	for i, t := range n.run {
		out, err := t.Render(&template.Scope{Root: fields})
		if err != nil {
			errs = append(errs, fmt.Errorf("notify %q: run[%d]: %w", n.Name, i, err))
		}
		argv[i] = strings.ReplaceAll(out, "\x00", "")
	}
	return argv, errors.Join(errs...)
}

// notifierReader reads the section notify, and the names of notifiers in others.
type notifierReader struct {
	*sharedReader
	policies  *policyReader
	notifiers map[string]*Notifier
	runs      []notifyCommand // of notifiers that run a command
}

// section reads the section.
func (r *notifierReader) section(at strictyaml.Place) {
	at.EachName("notifier", func(name string, at strictyaml.Place) { r.notifiers[name] = r.notifier(name, at) })
}

// notifier reads an entry of the section.
func (r *notifierReader) notifier(name string, at strictyaml.Place) *Notifier {
	n := &Notifier{Name: name, Dir: r.Dir, base: r.Dir}
	found, ok := strictyaml.Object(r, at, notifyKeys, n)
	r.runs = append(r.runs, notifyCommand{found["run"], n.run})
	r.addNotifyCommand(found["run"], n)
	var kinds []string
	for _, k := range notifyKinds {
		if _, given := found[k]; given {
			kinds = append(kinds, k)
		}
	}
	switch {
	case len(kinds) > 1:
		found[kinds[1]].Bad("%s is given already; a notifier has one kind", kinds[0])
	case len(kinds) == 1:
		n.Kind = kinds[0]
		r.notifierOf(at, found, n)
	case ok: // otherwise the key that is wrong may be meant for it
		at.Bad("there is no kind; want one of %s", strings.Join(notifyKinds, ", "))
	}
	return n
}

// addNotifyCommand remembers the command of a notifier.
func (r *notifierReader) addNotifyCommand(at strictyaml.Place, n *Notifier) {
	if at.Node == nil || len(n.run) != len(at.Node.Items) {
		return // there is none, or it is wrong
	}
	c := command{at: at, inherit: n.Inherit}
	for i, t := range n.run {
		c.args = append(c.args, usedText{at.Index(i), t})
	}
	for _, e := range n.Env {
		c.env = append(c.env, e.Name)
	}
	r.commands = append(r.commands, c)
}

// notifierOf checks what depends on the kind.
func (r *notifierReader) notifierOf(at strictyaml.Place, found map[string]strictyaml.Place, n *Notifier) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if kind := notifyOnly[name]; kind != "" && kind != n.Kind {
			found[name].Bad("%s is for %s; this is %s", name, kind, n.Kind)
		}
	}
	if n.On == nil && found["on"].Node == nil {
		n.On = []Trigger{{Event: "gave-up"}, {Event: "dead-letter"}, {Event: "start-refused"}}
		at.RecordDefault("on", triggers(n.On))
	}
	if n.Kind == NotifyWebhook && found["method"].Node == nil {
		n.Method = "POST"
		at.RecordDefault("method", n.Method)
	}
	policy, ok := found["policy"]
	if !ok {
		return
	}
	stated := n.Kind != NotifyEmail && n.Kind != NotifyRun // somebody there can state a delay
	if err := n.Policy.Refuse("a notifier", refused(!stated)...); err != nil {
		policy.Bad("%s", oneline.Error(err))
	}
}

// messageText reads a template of a notifier, and tries it.
func (r *notifierReader) messageText(at strictyaml.Place, name string, mode template.RefMode) *template.Text {
	t, ok := r.Text(at, name, mode, messageRoots)
	if !ok {
		return nil
	}
	for _, sample := range []map[string]any{fullMessage, shortMessage, emptyMessage} {
		if _, err := t.Render(&template.Scope{Root: sample, Secrets: r.Secrets, Dir: r.Dir}); err != nil {
			at.Bad("%v", err)
			return nil
		}
	}
	return t
}

// names reads a list of names of notifiers.
func (r *notifierReader) names(at strictyaml.Place) (names []string) {
	at.Each(func(at strictyaml.Place) {
		name, ok := at.Text()
		switch {
		case !ok:
		case r.notifiers[name] == nil:
			at.Bad("%s", r.unknownNotifier(name))
		case slices.Contains(names, name):
			at.Bad("%q is given already", name)
		default:
			names = append(names, name)
		}
	})
	at.Record(strings.Join(names, ","))
	return names
}

// unknownNotifier returns the message about a name that no notifier has.
func (r *notifierReader) unknownNotifier(name string) string {
	names := slices.Sorted(maps.Keys(r.notifiers))
	if near := strictyaml.Nearest(name, names); near != "" {
		return fmt.Sprintf("there is no notifier %q; did you mean %q?", name, near)
	}
	return fmt.Sprintf("there is no notifier %q in the section notify; there are %s", name, cmp.Or(strings.Join(names, ", "), "none"))
}

func triggers(on []Trigger) string {
	words := make([]string, len(on))
	for i, t := range on {
		words[i] = t.String()
	}
	return strings.Join(words, ",")
}
