package config

import (
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

func notifierListSchema(least int) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: nameSchema(), MinItems: &least, UniqueItems: true}
}

// sessionKeys are the keys of a session.
var sessionKeys = []key[Session]{
	{
		name: "start", required: true, doc: "The command that begins the session, as a list; there is no shell. {{.Session}} is the id of the session.",
		schema: commandSchema,
		set:    func(l *loader, at place, d *Session) { d.Start = l.arguments(at) },
	},
	{
		name: "resume", doc: "The command that resumes it, with {{.Session}}; known for claude -p, codex exec and gemini -p. Without one an assistant gives up when it stops, and any other command is run again.",
		schema: commandSchema,
		set:    func(l *loader, at place, d *Session) { d.Resume = l.arguments(at) },
	},
	{
		name: "resume-any", doc: "Whether the resume command finds the session by itself.",
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		set:    func(l *loader, at place, d *Session) { d.ResumeAny = l.truth(at) },
	},
	{
		name: "restart", doc: "Whether the start command is run again, with its first prompt, instead of resuming the session.",
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		set:    func(l *loader, at place, d *Session) { d.Restart = l.truth(at) },
	},
	{
		name: "dir", doc: "Working folder of the commands, relative to the file's; that one unless said.", schema: scalarSchema,
		set: func(l *loader, at place, d *Session) {
			if s, ok := l.scalar(at); ok {
				d.Dir = l.path(at, s)
				l.value(at, d.Dir)
			}
		},
	},
	{
		name: "env", doc: "Environment of the commands. Values may have references.", schema: envSchema,
		set: func(l *loader, at place, d *Session) { d.Env = l.secretEnv(at) },
	},
	{
		name: "detect", doc: "The pack of rules by which a stop is understood; by the command's name unless said.", schema: nameSchema,
		set: func(l *loader, at place, d *Session) {
			s, ok := l.scalar(at)
			if !ok {
				return
			}
			var err error
			if d.Pack, d.Rules, err = l.cfg.Detect(s, ""); err != nil {
				l.bad(at, "%v", err)
				return
			}
			l.value(at, s)
		},
	},
	{
		name: "policy", def: session.DefaultPolicy, doc: "When it is tried again: a text, the name of a policy, or a map.", schema: policySchema,
		set: func(l *loader, at place, d *Session) { d.Policy = l.shownPolicy(at) },
	},
	{
		name: "windows", def: "10", doc: "How many stated resets are waited for.", schema: count(1),
		set: func(l *loader, at place, d *Session) { d.Windows = l.number(at, 1) },
	},
	{
		name: "deadline", doc: "How long the whole session may take.", schema: durationSchema,
		set: func(l *loader, at place, d *Session) { d.Deadline = l.duration(at) },
	},
	{
		name: "quiet-hours", doc: "When nothing is begun, such as 23:00-07:00, with a time zone behind it or not.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}( .+)?$`}
		},
		set: func(l *loader, at place, d *Session) {
			s, ok := l.scalar(at)
			if !ok {
				return
			}
			var err error
			if d.Quiet, err = session.ParseHours(s); err != nil {
				l.bad(at, "%v", err)
				return
			}
			l.value(at, s)
		},
	},
	{
		name: "pause-at", doc: "How much of the quota of codex or claude is used, such as 90%, before nothing is begun until its reset.", schema: percentSchema,
		set: func(l *loader, at place, d *Session) { d.PauseAt = 100 * l.percent(at) },
	},
	{
		name: "account", doc: "The account whose limit the session shares with others; that of the assistant unless said, none for no account.", schema: nameSchema,
		set: func(l *loader, at place, d *Session) { d.Account = l.account(at) },
	},
	{
		name: "account-spread", def: "30s", doc: "The time over which the sessions of an account go on after its limit.", schema: durationSchema,
		set: func(l *loader, at place, d *Session) { d.AccountSpread = l.duration(at) },
	},
	{
		name:   "fallback",
		doc:    "Assistants that work in the folder while a stated limit lasts, one after the other: claude, codex or gemini, or a command as a list with {{.Prompt}}. None unless said.",
		schema: fallbackSchema,
		set:    func(l *loader, at place, d *Session) { d.Fallback = l.sessionFallback(at) },
	},
	{
		name: "fallback-after", doc: "How long a stated limit must last for another assistant to begin; an hour unless said.", schema: durationSchema,
		set: func(l *loader, at place, d *Session) { d.FallbackAfter = l.duration(at) },
	},
	{
		name: "fallback-prompt", doc: "The prompt of an assistant that takes over, with {{.Task}}, {{.Assistant}}, {{.Until}} and {{.Name}}; one that says what to do unless said.",
		schema: scalarSchema,
		set: func(l *loader, at place, d *Session) {
			if s, ok := l.scalar(at); ok {
				d.FallbackPrompt = s
				l.value(at, s)
			}
		},
	},
	{
		name: "on", doc: "What follows a stop, by its reason: " + strings.Join(session.Actions, ", ") + ", or a map with do and attempts.",
		schema: func() *jsonschema.Schema { return describe(onKeys) },
		set:    func(l *loader, at place, d *Session) { object(l, at, onKeys, d) },
	},
	{
		name: "notify", doc: "Notifiers that are told what it does, as far as they want to know.",
		schema: func() *jsonschema.Schema { return notifierListSchema(0) },
		set:    func(l *loader, at place, d *Session) { d.Notify = l.notifierNames(at) },
	},
}

// watchKeys are the keys of watch.
var watchKeys = []key[WatchDefaults]{
	{
		name: "type-at-reset", doc: "Whether `Continue.` and Enter are typed into an interactive session when a limit on its screen is over and its user has not typed since.",
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		set:    func(l *loader, at place, w *WatchDefaults) { w.TypeAtReset = l.truth(at) },
	},
}

// account reads the name of an account.
func (l *loader) account(at place) string {
	s, ok := l.scalar(at)
	if !ok {
		return ""
	}
	if err := account.CheckName(s); err != nil {
		l.bad(at, "%v", err)
		return ""
	}
	l.value(at, s)
	return s
}

func fallbackSchema() *jsonschema.Schema {
	name := scalarSchema()
	name.MinLength = new(1)
	return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{name, commandSchema()}}}
}

// sessionFallback reads the assistants that a session is handed over to.
func (l *loader) sessionFallback(at place) (list []session.Fallback) {
	ok := l.list(at, func(at place) {
		var words []string
		if at.node.kind == listKind {
			words = l.arguments(at)
		} else if s, ok := l.scalar(at); ok {
			words = []string{s}
			l.value(at, s)
		}
		if words == nil {
			return
		}
		f, err := session.ParseFallback(words)
		if err != nil {
			l.bad(at, "%v", err)
			return
		}
		list = append(list, f)
	})
	if ok && len(at.node.items) == 0 {
		l.bad(at, "there is no assistant in it; leave the key out for none")
	}
	return list
}

// onKeys are the reasons for which a session can be told what follows.
var onKeys = func() (keys []key[Session]) {
	for _, reason := range session.Reasons() {
		keys = append(keys, key[Session]{
			name: reason, doc: "What follows a stop for this reason.",
			schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{enum(session.Actions...), describe(actionOfKeys)}}
			},
			set: func(l *loader, at place, d *Session) { d.On[reason] = l.actionOf(at) },
		})
	}
	return keys
}()

var actionOfKeys = []key[session.Action]{
	{
		name: "do", def: session.DoResume, doc: "The action.",
		schema: func() *jsonschema.Schema { return enum(session.Actions...) },
		set: func(l *loader, at place, a *session.Action) {
			if word := l.word(at, session.Actions...); word != "" {
				parsed, _ := session.ParseAction(word)
				a.Do = parsed.Do
			}
		},
	},
	{
		name: "attempts", doc: "How often in a row, before the session gives up.", schema: count(1),
		set: func(l *loader, at place, a *session.Action) { a.Attempts = l.number(at, 1) },
	},
}

// actionOf reads what follows a stop.
func (l *loader) actionOf(at place) (a session.Action) {
	if at.node.kind == mapKind {
		object(l, at, actionOfKeys, &a)
		return a
	}
	s, ok := l.scalar(at)
	if !ok {
		return a
	}
	a, err := session.ParseAction(s)
	if err != nil {
		l.bad(at, "%v", err)
		return a
	}
	l.value(at, s)
	return a
}

// truth reads true or false.
func (l *loader) truth(at place) bool {
	if at.node.kind != boolKind {
		l.bad(at, "%v, where true or false is expected", at.node.kind)
		return false
	}
	l.value(at, at.node.text)
	return at.node.value == true
}
