package config

import (
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"time"

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

	Inherit Inherit // run: variables of the server that the command gets, beside those of Server.Inherit

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

// notifier reads an entry of the section.
func (l *loader) notifier(name string, at strictyaml.Place) *Notifier {
	n := &Notifier{Name: name, Dir: l.Dir, base: l.Dir}
	found, ok := strictyaml.Object(l, at, notifyKeys, n)
	l.commands = append(l.commands, notifyCommand{found["run"], n.run})
	l.addNotifyCommand(found["run"], n)
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
		l.notifierOf(at, found, n)
	case ok: // otherwise the key that is wrong may be meant for it
		at.Bad("there is no kind; want one of %s", strings.Join(notifyKinds, ", "))
	}
	return n
}

// addNotifyCommand remembers the command of a notifier.
func (l *loader) addNotifyCommand(at strictyaml.Place, n *Notifier) {
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
	l.ownCommands = append(l.ownCommands, c)
}

// notifierOf checks what depends on the kind.
func (l *loader) notifierOf(at strictyaml.Place, found map[string]strictyaml.Place, n *Notifier) {
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
func (l *loader) messageText(at strictyaml.Place, name string, mode template.RefMode) *template.Text {
	t, ok := l.Text(at, name, mode, messageRoots)
	if !ok {
		return nil
	}
	for _, sample := range []map[string]any{fullMessage, shortMessage, emptyMessage} {
		if _, err := t.Render(&template.Scope{Root: sample, Secrets: l.Secrets, Dir: l.Dir}); err != nil {
			at.Bad("%v", err)
			return nil
		}
	}
	return t
}

// notifyURL reads the URL of a notifier, and checks what it is at the moment.
func (l *loader) notifyURL(at strictyaml.Place) *template.SecretText {
	if literal, found := template.URLSecret(at.Node.Text); found && at.Node.Kind == strictyaml.KindText {
		template.RefuseLiteral(at, literal, template.WithRefs)
		return nil
	}
	return l.checkedURL(at, l.Open(at, "url"))
}

func (l *loader) checkedURL(at strictyaml.Place, s *template.SecretText) *template.SecretText {
	if s == nil {
		return nil
	}
	out, err := s.Resolve(l.Secrets)
	if err != nil { // it has just been there
		at.Bad("%v", err)
		return nil
	}
	if msg := badURL(out.Reveal()); msg != "" {
		at.Bad("what %q makes %s", s, msg)
		return nil
	}
	return s
}

func triggers(on []Trigger) string {
	words := make([]string, len(on))
	for i, t := range on {
		words[i] = t.String()
	}
	return strings.Join(words, ",")
}
