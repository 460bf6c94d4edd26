package config

import (
	"net"
	"net/mail"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/retry"
)

var notifyKinds = []string{notify.KindNtfy, notify.KindSlack, notify.KindWebhook, notify.KindEmail, notify.KindRun}

// notifyOnly has the kinds of keys that belong to one kind.
var notifyOnly = map[string]string{
	"token": notify.KindNtfy, "priority": notify.KindNtfy, "tags": notify.KindNtfy,
	"method": notify.KindWebhook, "headers": notify.KindWebhook, "body": notify.KindWebhook, "env": notify.KindRun, "env-inherit": notify.KindRun,
}

func notifySchema() *jsonschema.Schema {
	return strictyaml.OneOf(strictyaml.Describe(notifyKeys), notifyKinds...)
}

func referenceSchema() *jsonschema.Schema {
	s := strictyaml.TextSchema()
	s.Pattern = `\$\{(env|file):[^}]+\}`
	return s
}

// notifyKeys are the keys of a notifier.
var notifyKeys = append([]key[*notifierReader, notify.Spec]{
	{
		Name: "ntfy", Doc: "URL of a topic at ntfy.sh or another ntfy server; may contain references.", Schema: strictyaml.TextSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) { n.URL = r.secretURL(at) },
	},
	{
		Name: "slack", Doc: "URL of an incoming webhook of Slack or a compatible service. The URL is a secret: write it as a reference.", Schema: referenceSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) { n.URL = r.checkedURL(at, r.Secret(at)) },
	},
	{
		Name: "webhook", Doc: "URL to which the message is sent as JSON, or as body defines; may contain references.", Schema: strictyaml.TextSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) { n.URL = r.secretURL(at) },
	},
	{
		Name: "email", Doc: "Sends the message as an email.", Schema: func() *jsonschema.Schema { return strictyaml.Describe(emailKeys) },
		Set: func(r *notifierReader, at place, n *notify.Spec) { n.Email = r.email(at) },
	},
	{
		Name: "run", Doc: "A command and its arguments, as a list; no shell is used. Each is a template of the message. The command gets the message as JSON on standard input.",
		Schema: commandSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) {
			n.RunTexts = readCommandLine(at, func(at place) *template.Text { return r.messageText(at, "run", template.WithoutRefs) })
		},
	},
	{
		Name: "token", Doc: "Access token for ntfy, as a reference: ${env:NAME} or ${file:path}.", Schema: referenceSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) { n.Token = r.Secret(at) },
	},
	{
		Name: "priority", Doc: "Priority of the ntfy message. Default: that of the ntfy server.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(priorities...) },
		Set:    func(_ *notifierReader, at place, n *notify.Spec) { n.Priority = strictyaml.ReadWord(at, priorities...) },
	},
	{
		Name: "tags", Doc: "Tags of the ntfy message; names of emojis are shown as emojis.",
		Schema: func() *jsonschema.Schema { return strictyaml.TextsSchema(0) },
		Set:    setTags,
	},
	{
		Name: "method", Doc: "HTTP method of the webhook. Default: POST.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema("POST", "PUT", "PATCH") },
		Set: func(_ *notifierReader, at place, n *notify.Spec) {
			n.Method = strictyaml.ReadWord(at, "POST", "PUT", "PATCH")
		},
	},
	{
		Name: "headers", Doc: "HTTP headers of the webhook. Values may contain references.", Schema: headersSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) { n.Headers = r.SecretMap(at, headerNames()) },
	},
	{
		Name: "body", Doc: "Body of the webhook, a template of the message that may contain references. Default: the message as JSON.", Schema: strictyaml.ScalarSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) {
			if n.BodyText = r.messageText(at, "body", template.WithRefs); n.BodyText != nil {
				at.Record(n.BodyText.Source())
			}
		},
	},
	{
		Name: "env", Doc: "Environment variables of the command. Values may contain references.", Schema: envSchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) { n.Env = r.SecretMap(at, wrongVariable) },
	},
	{
		Name: "env-inherit", Doc: inheritDoc + "In addition to PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR, TIDEOVER_* and what server.env-inherit names.", Schema: inheritSchema,
		Set: func(_ *notifierReader, at place, n *notify.Spec) { n.Inherit = readInherit(at) },
	},
}, notifyLimits...)

var priorities = []string{"min", "low", "default", "high", "max"}

// notifyLimits are the keys of every kind: which messages it sends, and how many.
var notifyLimits = []key[*notifierReader, notify.Spec]{
	{
		Name: "on", Doc: "Events to send: gave-up, waiting, waiting>30m, resumed, breaker-open, recovered, dead-letter, storm, start-refused. Default: gave-up, dead-letter and start-refused.",
		Schema: func() *jsonschema.Schema {
			words := strings.Join(notify.TriggerEvents, "|")
			return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: &jsonschema.Schema{Type: "string", Pattern: `^\s*(` + words + `|waiting\s*>\s*` + strictyaml.DurationPattern + `)\s*$`, AllOf: []*jsonschema.Schema{{Pattern: `[1-9]|^[^>]*$`}}}}
		},
		Set: setOn,
	},
	{
		Name: "at-most", Doc: "Most messages per unit of time, such as 5/h; the units are s, m, h and d. Default: no limit.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: `^0*([1-9][0-9]{0,2}|1000)/[smhd]$`}
		},
		Set: func(_ *notifierReader, at place, n *notify.Spec) {
			if s, ok := at.Text(); ok {
				var err error
				if n.AtMost, err = notify.ParseRate(s); err != nil {
					at.Bad("%v", err)
					return
				}
				at.Record(s)
			}
		},
	},
	{
		Name: "dedupe", Default: "10m", Doc: "Time in which the same event of the same subject is sent only once; 0 sends every event.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Types: []string{"string", "integer"}, Minimum: new(0.0), Maximum: new(0.0), Pattern: "^(0|" + strictyaml.DurationPattern + ")$",
			}
		},
		Set: func(_ *notifierReader, at place, n *notify.Spec) {
			if d, err := retry.ParseDuration(at.Node.Text); at.Node.IsScalar() && err == nil && d == 0 {
				at.Record(at.Node.Text)
				return
			}
			n.Dedupe = strictyaml.ReadDuration(at)
		},
	},
	{
		Name: "timeout", Default: "10s", Doc: "Time limit for one attempt to send.", Schema: strictyaml.DurationSchema,
		Set: func(_ *notifierReader, at place, n *notify.Spec) { n.Timeout = strictyaml.ReadDuration(at) },
	},
	{
		Name: "policy", Default: notifyPolicy, Doc: "Retry policy: a text, the name of a policy, or a map.", Schema: policySchema,
		Set: func(r *notifierReader, at place, n *notify.Spec) {
			if p, ok := r.policies.policy(at); ok {
				n.Policy = p
				at.Record(p.String())
			}
		},
	},
}

func setOn(_ *notifierReader, at place, n *notify.Spec) {
	ok := at.Each(func(at place) {
		s, ok := at.Text()
		if !ok {
			return
		}
		t, err := notify.ParseTrigger(s)
		if err != nil {
			at.Bad("%v", err)
			return
		}
		n.On = append(n.On, t)
	})
	switch {
	case ok && len(at.Node.Items) == 0:
		at.Bad("the list is empty, so the notifier would never send a message; add an event")
	case ok:
		at.Record(triggers(n.On))
	}
}

func setTags(_ *notifierReader, at place, n *notify.Spec) {
	ok := at.Each(func(at place) {
		if s, ok := at.Text(); ok && strings.ContainsAny(s, ",\r\n") {
			at.Bad("%q has a comma or a line break, which a tag can't have", s)
		} else if ok {
			n.Tags = append(n.Tags, s)
		}
	})
	if ok {
		at.Record(strings.Join(n.Tags, ","))
	}
}

var emailKeys = []key[*notifierReader, notify.Email]{
	{
		Name: "to", Required: true, Doc: "Addresses of the recipients.",
		Schema: func() *jsonschema.Schema { return strictyaml.TextsSchema(1) },
		Set: func(_ *notifierReader, at place, e *notify.Email) {
			ok := at.Each(func(at place) {
				if a := readAddress(at); a != nil {
					e.To = append(e.To, a)
				}
			})
			if ok && len(at.Node.Items) == 0 {
				at.Bad("the list is empty; add at least one address")
			}
		},
	},
	{
		Name: "from", Required: true, Doc: "Address of the sender.", Schema: strictyaml.TextSchema,
		Set: func(_ *notifierReader, at place, e *notify.Email) { e.From = readAddress(at) },
	},
	{
		Name: "server", Required: true, Doc: "Mail server, host:port.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: `^(\[[^\[\]]+\]|[^:\[\]]+):` + portPattern + "$"}
		},
		Set: func(_ *notifierReader, at place, e *notify.Email) {
			s, ok := at.Text()
			host, port, err := net.SplitHostPort(s)
			if n, bad := strconv.ParseUint(port, 10, 16); ok && (err != nil || host == "" || bad != nil || n == 0) {
				at.Bad("%q is not an address such as mail.example.com:587", s)
			} else if ok {
				e.Server = s
				at.Record(s)
			}
		},
	},
	{
		Name: "username", Doc: "User name for the login; may contain references. Default: no login.", Schema: strictyaml.ScalarSchema,
		Set: func(r *notifierReader, at place, e *notify.Email) { e.Username = r.Open(at, "username") },
	},
	{
		Name: "password", Doc: "Password for the login, as a reference: ${env:NAME} or ${file:path}.", Schema: referenceSchema,
		Set: func(r *notifierReader, at place, e *notify.Email) { e.Password = r.Secret(at) },
	},
	{
		Name: "tls", Default: "starttls", Doc: "How the connection is encrypted: starttls, as on port 587; implicit, as on port 465; none.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema("starttls", "implicit", "none") },
		Set: func(_ *notifierReader, at place, e *notify.Email) {
			e.TLS = strictyaml.ReadWord(at, "starttls", "implicit", "none")
		},
	},
}

// email reads a mail server.
func (r *notifierReader) email(at place) *notify.Email {
	e := new(notify.Email)
	found, _ := strictyaml.Object(r, at, emailKeys, e)
	username, login := found["username"]
	password, secret := found["password"]
	switch {
	case login && !secret:
		username.Bad("requires password")
	case secret && !login:
		password.Bad("requires username")
	case login && e.TLS == "none" && e.Server != "" && !loopback(e.Server):
		found["tls"].Bad("the password would be sent unencrypted; use starttls or implicit")
	}
	return e
}

// readAddress reads an address, with or without a name.
func readAddress(at place) *mail.Address {
	s, ok := at.Text()
	if !ok {
		return nil
	}
	a, err := mail.ParseAddress(s)
	if err != nil || strings.ContainsFunc(a.Address, func(r rune) bool { return r > '~' || r <= ' ' }) {
		at.Bad("%q is not an address such as me@example.com", s)
		return nil
	}
	at.Record(s)
	return a
}
