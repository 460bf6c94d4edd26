package config

import (
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

func notifierListSchema(least int) func() *jsonschema.Schema {
	return func() *jsonschema.Schema {
		s := namesSchema()
		s.MinItems = &least
		return s
	}
}

const hoursPattern = `^[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}( .+)?$`

// sessionKeys are the keys of a session.
func (r *sessionReader) sessionKeys(d *Session) []key {
	return []key{
		strictyaml.Required(strictyaml.Field(&d.Start, "start", "", commandSchema, readArguments,
			"The command that starts the session, as a list; no shell is used. {{.Session}} is the id of the session.")),
		strictyaml.Field(&d.Resume, "resume", "", commandSchema, readArguments,
			"The command that resumes the session, with {{.Session}}; built in for claude -p, codex exec and gemini -p. Without a resume command, the session of an assistant gives up when the assistant stops, and any other command is run again."),
		strictyaml.Bool(&d.ResumeAny, "resume-any",
			"Whether the resume command finds the session without {{.Session}}."),
		strictyaml.Bool(&d.Restart, "restart",
			"Whether the start command is run again, with its first prompt, instead of resuming the session."),
		strictyaml.Field(&d.Dir, "dir", "", strictyaml.ScalarSchema, r.filePath,
			"Working folder of the commands, relative to the folder of this file. Default: the folder of this file."),
		strictyaml.Field(&d.Env, "env", "", envSchema, r.secretEnv,
			"Environment variables of the commands. Values may contain references."),
		strictyaml.Func("detect", "", strictyaml.NameSchema, func(at place) {
			d.Pack = strictyaml.ReadParsed(at, func(s string) (name string, err error) {
				name, d.Rules, err = findPack(r.packs, s)
				return name, err
			})
		}, "Pack of rules that finds out why the session stopped. Default: chosen by the name of the command."),
		strictyaml.Field(&d.Policy, "policy", session.DefaultPolicy, policySchema, r.policies.recorded,
			"Retry policy: a text, the name of a policy, or a map."),
		strictyaml.Int(&d.Windows, "windows", "10", 1,
			"How many stated limits the session waits for before it gives up."),
		strictyaml.Duration(&d.Deadline, "deadline", "", "Time limit for the whole session."),
		strictyaml.Parsed(&d.Quiet, "quiet-hours", "", strictyaml.PatternSchema(hoursPattern), session.ParseHours,
			"Time of day in which nothing is started, such as 23:00-07:00, optionally followed by a time zone."),
		strictyaml.Func("pause-at", "", percentSchema, func(at place) { d.PauseAt = 100 * readPercent(at) },
			"Used share of the quota of codex or claude, such as 90%, at which nothing is started until the quota resets."),
		strictyaml.Field(&d.Account, "account", "", strictyaml.NameSchema, readAccount,
			"Account whose limit the session shares with others; none for no account. Default: the account of the assistant."),
		strictyaml.Duration(&d.AccountSpread, "account-spread", "30s",
			"Time over which the sessions of an account are resumed, at random, after its limit ends."),
		strictyaml.Field(&d.Fallback, "fallback", "", fallbackSchema, readSessionFallback,
			"Assistants that continue the work in the folder while a stated limit lasts, in this order: claude, codex, gemini, or a command as a list with {{.Prompt}}. Default: none."),
		strictyaml.Duration(&d.FallbackAfter, "fallback-after", "",
			"How long a stated limit must last before a fallback assistant starts. Default: 1h."),
		strictyaml.Field(&d.FallbackPrompt, "fallback-prompt", "", strictyaml.ScalarSchema, strictyaml.ReadText,
			"Prompt for a fallback assistant, with {{.Task}}, {{.Assistant}}, {{.Until}} and {{.Name}}. Default: a built-in prompt."),
		strictyaml.Map("on", onKeys(d),
			"What to do after a stop, by its reason: "+strings.Join(session.Actions, ", ")+", or a map with do and attempts."),
		strictyaml.Field(&d.Notify, "notify", "", notifierListSchema(0), r.notifiers.names,
			"Notifiers that get the events of the session; the on key of each notifier selects events."),
	}
}

// watchKeys are the keys of watch.
func watchKeys(w *WatchDefaults) []key {
	return []key{
		strictyaml.Bool(&w.TypeAtReset, "type-at-reset",
			"Whether to type `Continue.` and Enter into an interactive session when a limit on its screen has ended and the user has not typed since."),
	}
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
func onKeys(d *Session) (keys []key) {
	for _, reason := range session.Reasons() {
		set := func(at place) { d.On[reason] = readAction(at) }
		keys = append(keys, strictyaml.Func(reason, "", actionSchema, set, "What to do after a stop for this reason."))
	}
	return keys
}

func actionSchema() *jsonschema.Schema {
	keys := actionOfKeys(new(session.Action))
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{strictyaml.WordSchema(session.Actions...), strictyaml.Describe(keys)}}
}

func actionOfKeys(a *session.Action) []key {
	return []key{
		strictyaml.Func("do", session.DoResume, wordSchema(session.Actions), func(at place) {
			if word := strictyaml.ReadWord(at, session.Actions...); word != "" {
				parsed, _ := session.ParseAction(word)
				a.Do = parsed.Do
			}
		}, "The action."),
		strictyaml.Int(&a.Attempts, "attempts", "", 1,
			"How many times in a row, before the session gives up."),
	}
}

// readAction reads what follows a stop.
func readAction(at place) (a session.Action) {
	if at.IsMap() {
		strictyaml.Object(at, actionOfKeys(&a))
		return a
	}
	return strictyaml.ReadParsed(at, session.ParseAction)
}
