package config

import (
	"fmt"
	"maps"
	"net"
	"net/mail"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
)

// notifyPolicy is the default policy of a notifier.
const notifyPolicy = "exponential(2s..5m) jitter=full attempts=unlimited total-timeout=1d"

// notifierReader reads the section notify, and the names of notifiers in other sections.
type notifierReader struct {
	*sharedReader
	policies  *policyReader
	notifiers map[string]*notify.Spec
	runs      []command // commands of the notifiers that have the kind run
}

// section reads the section notify into r.notifiers.
func (r *notifierReader) section(at place) {
	at.EachName("notifier", func(name string, at place) { r.notifiers[name] = r.notifier(name, at) })
}

// notifier reads an entry of the section.
func (r *notifierReader) notifier(name string, at place) *notify.Spec {
	n := &notify.Spec{Name: name, Dir: r.Dir, Base: r.Dir}
	found, ok := strictyaml.Object(at, r.notifyKeys(n))
	r.addNotifyCommand(found["run"], n)
	switch kinds := present(found, notifyKinds); {
	case len(kinds) > 1:
		found[kinds[1]].Bad("can't be combined with %s; a notifier has one kind", kinds[0])
	case len(kinds) == 1:
		n.Kind = kinds[0]
		checkKind(at, found, n)
	case ok: // if not ok, one of the invalid keys may be a misspelled kind
		at.Bad("the kind is missing; want one of %s", strings.Join(notifyKinds, ", "))
	}
	return n
}

// addNotifyCommand keeps the command of a notifier for later checks.
func (r *notifierReader) addNotifyCommand(at place, n *notify.Spec) {
	if at.Node == nil || len(n.RunTexts) != len(at.Node.Items) {
		return // the notifier has no command, or an invalid one
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

// checkKind checks the keys that depend on the kind, and sets their defaults.
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

// messageText reads a template of a notifier, and renders it once as a test.
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

var notifyKinds = []string{notify.KindNtfy, notify.KindSlack, notify.KindWebhook, notify.KindEmail, notify.KindRun}

// notifyOnly maps each key that only one kind of notifier has to that kind.
var notifyOnly = map[string]string{
	"token": notify.KindNtfy, "priority": notify.KindNtfy, "tags": notify.KindNtfy,
	"method": notify.KindWebhook, "headers": notify.KindWebhook, "body": notify.KindWebhook, "env": notify.KindRun, "env-inherit": notify.KindRun,
}

var referenceSchema = strictyaml.PatternSchema(`\$\{(env|file):[^}]+\}`)

// notifyKeys are the keys of a notifier.
func (r *notifierReader) notifyKeys(n *notify.Spec) []key {
	return append([]key{
		strictyaml.Field(&n.URL, "ntfy", "", strictyaml.TextSchema, r.secretURL,
			"URL of a topic at ntfy.sh or another ntfy server; may contain references."),
		strictyaml.Field(&n.URL, "slack", "", referenceSchema,
			func(at place) *template.SecretText { return r.checkedURL(at, r.Secret(at)) },
			"URL of an incoming webhook of Slack or a compatible service. The URL is a secret: write it as a reference."),
		strictyaml.Field(&n.URL, "webhook", "", strictyaml.TextSchema, r.secretURL,
			"URL to which the message is sent as JSON, or as body defines; may contain references."),
		strictyaml.Field(&n.Email, "email", "", describe(r.emailKeys(new(notify.Email))), r.email,
			"Sends the message as an email."),
		strictyaml.Field(&n.RunTexts, "run", "", commandSchema, r.messageCommand,
			"A command and its arguments, as a list; no shell is used. Each is a template of the message. The command gets the message as JSON on standard input."),
		strictyaml.Field(&n.Token, "token", "", referenceSchema, r.Secret,
			"Access token for ntfy, as a reference: ${env:NAME} or ${file:path}."),
		strictyaml.Word(&n.Priority, "priority", "", priorities,
			"Priority of the ntfy message. Default: that of the ntfy server."),
		strictyaml.Field(&n.Tags, "tags", "", strictyaml.TextsSchema(0), readTags,
			"Tags of the ntfy message; names of emojis are shown as emojis."),
		strictyaml.Word(&n.Method, "method", "", []string{"POST", "PUT", "PATCH"},
			"HTTP method of the webhook. Default: POST."),
		strictyaml.Field(&n.Headers, "headers", "", headersSchema, r.secretHeaders,
			"HTTP headers of the webhook. Values may contain references."),
		strictyaml.Func("body", "", strictyaml.ScalarSchema, func(at place) {
			n.BodyText = r.messageText(at, "body", template.WithRefs)
			at.Record(at.Node.Text)
		}, "Body of the webhook, a template of the message that may contain references. Default: the message as JSON."),
		strictyaml.Field(&n.Env, "env", "", envSchema,
			func(at place) []template.NamedSecret { return r.SecretMap(at, wrongVariable) },
			"Environment variables of the command. Values may contain references."),
		strictyaml.Field(&n.Inherit, "env-inherit", "", inheritSchema, readInherit,
			inheritDoc),
	}, r.notifyLimits(n)...)
}

var priorities = []string{"min", "low", "default", "high", "max"}

// notifyLimits are the keys that every kind has: which messages are sent, how many, and
// how they are retried.
func (r *notifierReader) notifyLimits(n *notify.Spec) []key {
	return []key{
		strictyaml.Field(&n.On, "on", "", triggersSchema, readTriggers,
			"Events to send: gave-up, waiting, waiting>30m, resumed, breaker-open, recovered, dead-letter, storm, start-refused, asked, succeeded. Default: gave-up, dead-letter and start-refused."),
		strictyaml.Parsed(&n.AtMost, "at-most", "", strictyaml.PatternSchema(`^0*([1-9][0-9]{0,2}|1000)/[smhd]$`), notify.ParseRate,
			"Most messages per unit of time, such as 5/h; the units are s, m, h and d. Default: no limit."),
		strictyaml.Func("dedupe", "10m", durationOrZeroSchema, func(at place) {
			n.Dedupe, _ = at.Duration()
			at.Record(at.Node.Text)
		}, "Time in which the same event of the same subject is sent only once; 0 sends every event."),
		strictyaml.Duration(&n.Timeout, "timeout", "10s", "Time limit for one attempt to send."),
		strictyaml.Field(&n.Policy, "policy", notifyPolicy, policySchema, r.policies.recorded,
			"Retry policy: a text, the name of a policy, or a map."),
	}
}

func durationOrZeroSchema() *jsonschema.Schema {
	pattern := "^(0|" + strictyaml.DurationPattern + ")$"
	return &jsonschema.Schema{Types: []string{"string", "integer"}, Minimum: new(0.0), Maximum: new(0.0), Pattern: pattern}
}

func triggersSchema() *jsonschema.Schema {
	words := strings.Join(notify.TriggerEvents, "|")
	item := strictyaml.PatternSchema(`^\s*(` + words + `|waiting\s*>\s*` + strictyaml.DurationPattern + `)\s*$`)()
	item.AllOf = []*jsonschema.Schema{{Pattern: `[1-9]|^[^>]*$`}}
	return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: item}
}

func readTriggers(at place) (on []notify.Trigger) {
	at.Each(func(at place) {
		if s, ok := at.Text(); ok {
			t, err := notify.ParseTrigger(s)
			if err != nil {
				at.Bad("%v", err)
				return
			}
			on = append(on, t)
		}
	})
	refuseEmpty(at, "the list is empty, so the notifier would never send a message; add an event")
	at.Record(triggers(on))
	return on
}

func readTags(at place) (tags []string) {
	at.Each(func(at place) {
		if s, ok := at.Text(); ok && strings.ContainsAny(s, ",\r\n") {
			at.Bad("%q has a comma or a line break, which a tag can't have", s)
		} else if ok {
			tags = append(tags, s)
		}
	})
	recordItems(at)
	return tags
}

func (r *notifierReader) emailKeys(e *notify.Email) []key {
	return []key{
		strictyaml.Required(strictyaml.Func("to", "", strictyaml.TextsSchema(1), func(at place) {
			at.Each(func(at place) {
				if a := strictyaml.ReadParsed(at, parseAddress); a != nil {
					e.To = append(e.To, a)
				}
			})
			refuseEmpty(at, "the list is empty; add at least one address")
		}, "Addresses of the recipients.")),
		strictyaml.Required(strictyaml.Parsed(&e.From, "from", "", strictyaml.TextSchema, parseAddress,
			"Address of the sender.")),
		strictyaml.Required(strictyaml.Parsed(&e.Server, "server", "", mailServerSchema, parseMailServer,
			"Mail server, host:port.")),
		strictyaml.Field(&e.Username, "username", "", strictyaml.ScalarSchema, r.Open,
			"User name for the login; may contain references. Default: no login."),
		strictyaml.Field(&e.Password, "password", "", referenceSchema, r.Secret,
			"Password for the login, as a reference: ${env:NAME} or ${file:path}."),
		strictyaml.Word(&e.TLS, "tls", "starttls", []string{"starttls", "implicit", "none"},
			"How the connection is encrypted: starttls, as on port 587; implicit, as on port 465; none."),
	}
}

// email reads the settings of a notifier of the kind email.
func (r *notifierReader) email(at place) *notify.Email {
	e := new(notify.Email)
	found, _ := strictyaml.Object(at, r.emailKeys(e))
	checkPair(found, "username", "password")
	_, login := found["username"]
	_, secret := found["password"]
	if login && secret && e.TLS == "none" && e.Server != "" && !loopback(e.Server) {
		found["tls"].Bad("the password would be sent unencrypted; use starttls or implicit")
	}
	return e
}

var mailServerSchema = strictyaml.PatternSchema(`^(\[[^\[\]]+\]|[^:\[\]]+):` + portPattern + "$")

func parseMailServer(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		return "", fmt.Errorf("%q is not an address such as mail.example.com:587", s)
	}
	return s, nil
}

// parseAddress parses an email address, with or without a display name.
func parseAddress(s string) (*mail.Address, error) {
	a, err := mail.ParseAddress(s)
	if err != nil || strings.ContainsFunc(a.Address, func(r rune) bool { return r > '~' || r <= ' ' }) {
		return nil, fmt.Errorf("%q is not an address such as me@example.com", s)
	}
	return a, nil
}
