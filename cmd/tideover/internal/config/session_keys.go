package config

import (
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

func notifierListSchema(least int) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: strictyaml.NameSchema(), MinItems: &least, UniqueItems: true}
}

// sessionKeys are the keys of a session.
var sessionKeys = []key[*sessionReader, Session]{
	{
		Name: "start", Required: true, Doc: "The command that starts the session, as a list; no shell is used. {{.Session}} is the id of the session.",
		Schema: commandSchema,
		Set:    func(_ *sessionReader, at place, d *Session) { d.Start = readArguments(at) },
	},
	{
		Name: "resume", Doc: "The command that resumes the session, with {{.Session}}; built in for claude -p, codex exec and gemini -p. Without a resume command, the session of an assistant gives up when the assistant stops, and any other command is run again.",
		Schema: commandSchema,
		Set:    func(_ *sessionReader, at place, d *Session) { d.Resume = readArguments(at) },
	},
	{
		Name: "resume-any", Doc: "Whether the resume command finds the session without {{.Session}}.",
		Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		Set:    func(_ *sessionReader, at place, d *Session) { d.ResumeAny = strictyaml.ReadBool(at) },
	},
	{
		Name: "restart", Doc: "Whether the start command is run again, with its first prompt, instead of resuming the session.",
		Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		Set:    func(_ *sessionReader, at place, d *Session) { d.Restart = strictyaml.ReadBool(at) },
	},
	{
		Name: "dir", Doc: "Working folder of the commands, relative to the folder of this file. Default: the folder of this file.", Schema: strictyaml.ScalarSchema,
		Set: func(r *sessionReader, at place, d *Session) {
			if s, ok := at.Text(); ok {
				d.Dir = r.path(at, s)
				at.Record(d.Dir)
			}
		},
	},
	{
		Name: "env", Doc: "Environment variables of the commands. Values may contain references.", Schema: envSchema,
		Set: func(r *sessionReader, at place, d *Session) { d.Env = r.secretEnv(at) },
	},
	{
		Name: "detect", Doc: "Pack of rules that finds out why the session stopped. Default: chosen by the name of the command.", Schema: strictyaml.NameSchema,
		Set: func(r *sessionReader, at place, d *Session) {
			s, ok := at.Text()
			if !ok {
				return
			}
			var err error
			if d.Pack, d.Rules, err = findPack(r.packs, s); err != nil {
				at.Bad("%v", err)
				return
			}
			at.Record(s)
		},
	},
	{
		Name: "policy", Default: session.DefaultPolicy, Doc: "Retry policy: a text, the name of a policy, or a map.", Schema: policySchema,
		Set: func(r *sessionReader, at place, d *Session) { d.Policy = r.policies.recorded(at) },
	},
	{
		Name: "windows", Default: "10", Doc: "How many stated limits the session waits for before it gives up.", Schema: strictyaml.IntSchema(1),
		Set: func(_ *sessionReader, at place, d *Session) { d.Windows = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "deadline", Doc: "Time limit for the whole session.", Schema: strictyaml.DurationSchema,
		Set: func(_ *sessionReader, at place, d *Session) { d.Deadline = strictyaml.ReadDuration(at) },
	},
	{
		Name: "quiet-hours", Doc: "Time of day in which nothing is started, such as 23:00-07:00, optionally followed by a time zone.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}( .+)?$`}
		},
		Set: func(_ *sessionReader, at place, d *Session) {
			s, ok := at.Text()
			if !ok {
				return
			}
			var err error
			if d.Quiet, err = session.ParseHours(s); err != nil {
				at.Bad("%v", err)
				return
			}
			at.Record(s)
		},
	},
	{
		Name: "pause-at", Doc: "Used share of the quota of codex or claude, such as 90%, at which nothing is started until the quota resets.", Schema: percentSchema,
		Set: func(_ *sessionReader, at place, d *Session) { d.PauseAt = 100 * readPercent(at) },
	},
	{
		Name: "account", Doc: "Account whose limit the session shares with others; none for no account. Default: the account of the assistant.", Schema: strictyaml.NameSchema,
		Set: func(_ *sessionReader, at place, d *Session) { d.Account = readAccount(at) },
	},
	{
		Name: "account-spread", Default: "30s", Doc: "Time over which the sessions of an account are resumed, at random, after its limit ends.", Schema: strictyaml.DurationSchema,
		Set: func(_ *sessionReader, at place, d *Session) { d.AccountSpread = strictyaml.ReadDuration(at) },
	},
	{
		Name:   "fallback",
		Doc:    "Assistants that continue the work in the folder while a stated limit lasts, in this order: claude, codex, gemini, or a command as a list with {{.Prompt}}. Default: none.",
		Schema: fallbackSchema,
		Set:    func(_ *sessionReader, at place, d *Session) { d.Fallback = readSessionFallback(at) },
	},
	{
		Name: "fallback-after", Doc: "How long a stated limit must last before a fallback assistant starts. Default: 1h.", Schema: strictyaml.DurationSchema,
		Set: func(_ *sessionReader, at place, d *Session) { d.FallbackAfter = strictyaml.ReadDuration(at) },
	},
	{
		Name: "fallback-prompt", Doc: "Prompt for a fallback assistant, with {{.Task}}, {{.Assistant}}, {{.Until}} and {{.Name}}. Default: a built-in prompt.",
		Schema: strictyaml.ScalarSchema,
		Set: func(_ *sessionReader, at place, d *Session) {
			if s, ok := at.Text(); ok {
				d.FallbackPrompt = s
				at.Record(s)
			}
		},
	},
	{
		Name: "on", Doc: "What to do after a stop, by its reason: " + strings.Join(session.Actions, ", ") + ", or a map with do and attempts.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(onKeys) },
		Set:    func(r *sessionReader, at place, d *Session) { strictyaml.Object(r, at, onKeys, d) },
	},
	{
		Name: "notify", Doc: "Notifiers that get the events of the session; the on key of each notifier selects events.",
		Schema: func() *jsonschema.Schema { return notifierListSchema(0) },
		Set:    func(r *sessionReader, at place, d *Session) { d.Notify = r.notifiers.names(at) },
	},
}

// watchKeys are the keys of watch.
var watchKeys = []key[*sessionReader, WatchDefaults]{
	{
		Name: "type-at-reset", Doc: "Whether to type `Continue.` and Enter into an interactive session when a limit on its screen has ended and the user has not typed since.",
		Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		Set:    func(_ *sessionReader, at place, w *WatchDefaults) { w.TypeAtReset = strictyaml.ReadBool(at) },
	},
}

func fallbackSchema() *jsonschema.Schema {
	name := strictyaml.ScalarSchema()
	name.MinLength = new(1)
	return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{name, commandSchema()}}}
}

// readSessionFallback reads the assistants that a session is handed over to.
func readSessionFallback(at place) (list []session.Fallback) {
	ok := at.Each(func(at place) {
		var words []string
		if at.Node.Kind == strictyaml.KindList {
			words = readArguments(at)
		} else if s, ok := at.Text(); ok {
			words = []string{s}
			at.Record(s)
		}
		if words == nil {
			return
		}
		f, err := session.ParseFallback(words)
		if err != nil {
			at.Bad("%v", err)
			return
		}
		list = append(list, f)
	})
	if ok && len(at.Node.Items) == 0 {
		at.Bad("the list is empty; leave fallback out to use none")
	}
	return list
}

// onKeys are the reasons of a stop for which the file can set what follows.
var onKeys = func() (keys []key[*sessionReader, Session]) {
	for _, reason := range session.Reasons() {
		keys = append(keys, key[*sessionReader, Session]{
			Name: reason, Doc: "What to do after a stop for this reason.",
			Schema: func() *jsonschema.Schema {
				return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{strictyaml.WordSchema(session.Actions...), strictyaml.Describe(actionOfKeys)}}
			},
			Set: func(_ *sessionReader, at place, d *Session) { d.On[reason] = readAction(at) },
		})
	}
	return keys
}()

var actionOfKeys = []key[struct{}, session.Action]{
	{
		Name: "do", Default: session.DoResume, Doc: "The action.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(session.Actions...) },
		Set: func(_ struct{}, at place, a *session.Action) {
			if word := strictyaml.ReadWord(at, session.Actions...); word != "" {
				parsed, _ := session.ParseAction(word)
				a.Do = parsed.Do
			}
		},
	},
	{
		Name: "attempts", Doc: "How many times in a row, before the session gives up.", Schema: strictyaml.IntSchema(1),
		Set: func(_ struct{}, at place, a *session.Action) { a.Attempts = strictyaml.ReadInt(at, 1) },
	},
}

// readAction reads what follows a stop.
func readAction(at place) (a session.Action) {
	if at.Node.Kind == strictyaml.KindMap {
		strictyaml.Object(struct{}{}, at, actionOfKeys, &a)
		return a
	}
	s, ok := at.Text()
	if !ok {
		return a
	}
	a, err := session.ParseAction(s)
	if err != nil {
		at.Bad("%v", err)
		return a
	}
	at.Record(s)
	return a
}
