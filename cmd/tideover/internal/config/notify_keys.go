package config

import (
	"net"
	"net/mail"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/retry"
)

var notifyKinds = []string{NotifyNtfy, NotifySlack, NotifyWebhook, NotifyEmail, NotifyRun}

// notifyOnly says which keys belong to one kind.
var notifyOnly = map[string]string{
	"token": NotifyNtfy, "priority": NotifyNtfy, "tags": NotifyNtfy,
	"method": NotifyWebhook, "headers": NotifyWebhook, "body": NotifyWebhook, "env": NotifyRun, "env-inherit": NotifyRun,
}

func notifySchema() *jsonschema.Schema { return oneOf(describe(notifyKeys), notifyKinds...) }

func referenceSchema() *jsonschema.Schema {
	s := textSchema()
	s.Pattern = `\$\{(env|file):[^}]+\}`
	return s
}

func textsSchema(least int) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", MinItems: &least, Items: scalarSchema()}
}

// notifyKeys are the keys of a notifier.
var notifyKeys = append([]key[Notifier]{
	{
		name: "ntfy", doc: "URL of a topic of ntfy.sh or of another ntfy server; may have references.", schema: textSchema,
		set: func(l *loader, at place, n *Notifier) { n.URL = l.notifyURL(at) },
	},
	{
		name: "slack", doc: "URL of an incoming webhook of Slack, or of what understands the same; a secret, as a reference.", schema: referenceSchema,
		set: func(l *loader, at place, n *Notifier) { n.URL = l.checkedURL(at, l.secretText(at)) },
	},
	{
		name: "webhook", doc: "URL that gets the message as JSON, or body; may have references.", schema: textSchema,
		set: func(l *loader, at place, n *Notifier) { n.URL = l.notifyURL(at) },
	},
	{
		name: "email", doc: "Sends mail through a server.", schema: func() *jsonschema.Schema { return describe(emailKeys) },
		set: func(l *loader, at place, n *Notifier) { n.Email = l.email(at) },
	},
	{
		name: "run", doc: "A command and its arguments, as a list; there is no shell. Each is a template of the message, whose JSON is on its input.",
		schema: commandSchema,
		set: func(l *loader, at place, n *Notifier) {
			n.run = l.commandLine(at, func(at place) *text { return l.messageText(at, "run", withoutRefs) })
		},
	},
	{
		name: "token", doc: "Access token of ntfy, as a reference: ${env:NAME} or ${file:path}.", schema: referenceSchema,
		set: func(l *loader, at place, n *Notifier) { n.Token = l.secretText(at) },
	},
	{
		name: "priority", doc: "Priority of ntfy; the server's default unless said.",
		schema: func() *jsonschema.Schema { return enum(priorities...) },
		set:    func(l *loader, at place, n *Notifier) { n.Priority = l.word(at, priorities...) },
	},
	{
		name: "tags", doc: "Tags of ntfy; those that are names of emojis are shown as such.",
		schema: func() *jsonschema.Schema { return textsSchema(0) },
		set:    setTags,
	},
	{
		name: "method", doc: "Method of the webhook; POST unless said.",
		schema: func() *jsonschema.Schema { return enum("POST", "PUT", "PATCH") },
		set:    func(l *loader, at place, n *Notifier) { n.Method = l.word(at, "POST", "PUT", "PATCH") },
	},
	{
		name: "headers", doc: "Headers of the webhook. Values may have references.", schema: headersSchema,
		set: func(l *loader, at place, n *Notifier) { n.Headers = l.namedSecrets(at, headerNames()) },
	},
	{
		name: "body", doc: "Body of the webhook, a template of the message that may have references; the message as JSON unless said.", schema: scalarSchema,
		set: func(l *loader, at place, n *Notifier) {
			if n.body = l.messageText(at, "body", withRefs); n.body != nil {
				l.value(at, n.body.src)
			}
		},
	},
	{
		name: "env", doc: "Environment of the command. Values may have references.", schema: envSchema,
		set: func(l *loader, at place, n *Notifier) { n.Env = l.namedSecrets(at, wrongVariable) },
	},
	{
		name: "env-inherit", doc: inheritDoc + "In addition to PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR, TIDEOVER_* and what server.env-inherit names.", schema: inheritSchema,
		set: func(l *loader, at place, n *Notifier) { n.Inherit = l.inherit(at) },
	},
}, notifyLimits...)

var priorities = []string{"min", "low", "default", "high", "max"}

// notifyLimits are the keys that every kind has: when it tells, and how often.
var notifyLimits = []key[Notifier]{
	{
		name: "on", doc: "What it tells of: gave-up, waiting, waiting>30m, resumed, breaker-open, recovered, dead-letter, storm, start-refused; gave-up, dead-letter and start-refused unless said.",
		schema: func() *jsonschema.Schema {
			words := strings.Join(notifyEvents, "|")
			return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: &jsonschema.Schema{Type: "string", Pattern: `^\s*(` + words + `|waiting\s*>\s*` + durationPattern + `)\s*$`, AllOf: []*jsonschema.Schema{{Pattern: `[1-9]|^[^>]*$`}}}}
		},
		set: setOn,
	},
	{
		name: "at-most", doc: "Messages in any stretch of time, such as 5/h, with the units s, m, h and d; no limit unless said.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: `^0*([1-9][0-9]{0,2}|1000)/[smhd]$`}
		},
		set: func(l *loader, at place, n *Notifier) {
			if s, ok := l.scalar(at); ok {
				var err error
				if n.AtMost, err = ParseRate(s); err != nil {
					l.bad(at, "%v", err)
					return
				}
				l.value(at, s)
			}
		},
	},
	{
		name: "dedupe", def: "10m", doc: "The same event of the same subject is told once in this time; 0 for always.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Types: []string{"string", "integer"}, Minimum: new(0.0), Maximum: new(0.0), Pattern: "^(0|" + durationPattern + ")$",
			}
		},
		set: func(l *loader, at place, n *Notifier) {
			if d, err := retry.ParseDuration(at.node.text); at.node.scalar() && err == nil && d == 0 {
				l.value(at, at.node.text)
				return
			}
			n.Dedupe = l.duration(at)
		},
	},
	{
		name: "timeout", def: "10s", doc: "Time of one attempt to send.", schema: durationSchema,
		set: func(l *loader, at place, n *Notifier) { n.Timeout = l.duration(at) },
	},
	{
		name: "policy", def: notifyPolicy, doc: "When it is tried again: a text, the name of a policy, or a map.", schema: policySchema,
		set: func(l *loader, at place, n *Notifier) {
			if p, ok := l.policy(at); ok {
				n.Policy = p
				l.value(at, p.String())
			}
		},
	},
}

func setOn(l *loader, at place, n *Notifier) {
	ok := l.list(at, func(at place) {
		s, ok := l.scalar(at)
		if !ok {
			return
		}
		t, err := ParseTrigger(s)
		if err != nil {
			l.bad(at, "%v", err)
			return
		}
		n.On = append(n.On, t)
	})
	switch {
	case ok && len(at.node.items) == 0:
		l.bad(at, "the list is empty, so that it would never tell anything")
	case ok:
		l.value(at, triggers(n.On))
	}
}

func setTags(l *loader, at place, n *Notifier) {
	ok := l.list(at, func(at place) {
		if s, ok := l.scalar(at); ok && strings.ContainsAny(s, ",\r\n") {
			l.bad(at, "%q has a comma or a line break, which a tag can't have", s)
		} else if ok {
			n.Tags = append(n.Tags, s)
		}
	})
	if ok {
		l.value(at, strings.Join(n.Tags, ","))
	}
}

var emailKeys = []key[Email]{
	{
		name: "to", required: true, doc: "Addresses of those who get it.",
		schema: func() *jsonschema.Schema { return textsSchema(1) },
		set: func(l *loader, at place, e *Email) {
			ok := l.list(at, func(at place) {
				if a := l.address(at); a != nil {
					e.To = append(e.To, a)
				}
			})
			if ok && len(at.node.items) == 0 {
				l.bad(at, "there is no address")
			}
		},
	},
	{
		name: "from", required: true, doc: "Address of the sender.", schema: textSchema,
		set: func(l *loader, at place, e *Email) { e.From = l.address(at) },
	},
	{
		name: "server", required: true, doc: "Mail server, host:port.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: `^(\[[^\[\]]+\]|[^:\[\]]+):` + portPattern + "$"}
		},
		set: func(l *loader, at place, e *Email) {
			s, ok := l.scalar(at)
			host, port, err := net.SplitHostPort(s)
			if n, bad := strconv.ParseUint(port, 10, 16); ok && (err != nil || host == "" || bad != nil || n == 0) {
				l.bad(at, "%q is not an address such as mail.example.com:587", s)
			} else if ok {
				e.Server = s
				l.value(at, s)
			}
		},
	},
	{
		name: "username", doc: "Name to log in with; may have references. No login unless said.", schema: scalarSchema,
		set: func(l *loader, at place, e *Email) { e.Username = l.openText(at, "username") },
	},
	{
		name: "password", doc: "Password to log in with, as a reference: ${env:NAME} or ${file:path}.", schema: referenceSchema,
		set: func(l *loader, at place, e *Email) { e.Password = l.secretText(at) },
	},
	{
		name: "tls", def: "starttls", doc: "How the connection is made safe: starttls, as on port 587; implicit, as on port 465; none.",
		schema: func() *jsonschema.Schema { return enum("starttls", "implicit", "none") },
		set:    func(l *loader, at place, e *Email) { e.TLS = l.word(at, "starttls", "implicit", "none") },
	},
}

// email reads a mail server.
func (l *loader) email(at place) *Email {
	e := new(Email)
	found, _ := object(l, at, emailKeys, e)
	username, login := found["username"]
	password, secret := found["password"]
	switch {
	case login && !secret:
		l.bad(username, "there is a username and no password")
	case secret && !login:
		l.bad(password, "there is a password and no username")
	case login && e.TLS == "none" && e.Server != "" && !loopback(e.Server):
		l.bad(found["tls"], "the password would cross the network in the clear; use starttls or implicit")
	}
	return e
}

// address reads an address, with or without a name.
func (l *loader) address(at place) *mail.Address {
	s, ok := l.scalar(at)
	if !ok {
		return nil
	}
	a, err := mail.ParseAddress(s)
	if err != nil || strings.ContainsFunc(a.Address, func(r rune) bool { return r > '~' || r <= ' ' }) {
		l.bad(at, "%q is not an address such as me@example.com", s)
		return nil
	}
	l.value(at, s)
	return a
}
