package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
)

// Session is a long-running command that `tideover serve` resumes after limits and
// failures.
type Session struct {
	session.Spec
	Notify []string // names of the notifiers that get its events
}

// WatchDefaults are the defaults of the flags of `tideover watch`.
type WatchDefaults struct {
	TypeAtReset bool // whether to type a prompt to continue when a limit on the screen has ended
}

// CheckSessionName returns an error if the text is not a valid name for a session.
func CheckSessionName(name string) error {
	switch {
	case !strictyaml.ValidName(name):
		return fmt.Errorf("%q is not a valid name for a session; %s", name, strictyaml.NameRule)
	case strings.HasSuffix(name, alarmSuffix):
		return fmt.Errorf("%q ends in %s, which is reserved", name, alarmSuffix)
	}
	return nil
}

// SessionNames returns the names of the sessions in the order of the file.
func (c *Config) SessionNames() []string { return c.sessions }

// Detect returns the name of a pack and its rules. The rules are nil if the pack is a
// built-in one. If name is "", Detect returns the pack fallback.
func (c *Config) Detect(name, fallback string) (pack string, rules *detect.Spec, err error) {
	return findPack(c.Packs, cmp.Or(name, fallback))
}

func findPack(packs map[string]*detect.Pack, name string) (pack string, rules *detect.Spec, err error) {
	if p := packs[name]; p != nil {
		spec := p.Spec()
		return name, &spec, nil
	}
	if _, err := detect.Builtin(name); err != nil {
		return "", nil, err
	}
	return name, nil, nil
}

// Expand replaces the references in a value of a session's environment by the secrets.
func (c *Config) Expand(value string) (string, error) {
	t, err := template.Parse(value, template.WithRefs, template.Fields{})
	if err != nil {
		return "", err
	}
	s, err := template.NewSecretText(t, c.dir).Resolve(c.secrets)
	return s.Reveal(), err
}

// sessionReader reads the sections detect and sessions.
type sessionReader struct {
	*sharedReader
	policies  *policyReader
	notifiers *notifierReader
	providers *providerReader
	packs     map[string]*detect.Pack
}

// pack reads an entry of the section detect into r.packs.
func (r *sessionReader) pack(name string, at place) {
	if slices.Contains(detect.Names(), name) {
		at.Bad("%q is the name of a built-in pack; choose another name, and set extends: %[1]s", name)
		return
	}
	if _, ok := strictyaml.Object(at, packKeys()); !ok {
		return
	}
	text, err := json.Marshal(at.Node.Plain()) // detect.Parse reads YAML, which includes JSON
	if err != nil {
		at.Bad("%v", err)
		return
	}
	p, err := detect.Parse(name, text)
	if err != nil {
		at.Bad("%s", oneline.Error(err))
		return
	}
	r.packs[name] = p
	at.Record(fmt.Sprintf("%d rules", len(p.Spec().Rules)))
}

// packKeys returns the keys of a pack. Package detect parses their values.
func packKeys() []key {
	name := strictyaml.WordSchema(detect.Names()...)()
	return []key{
		packKey("description", strictyaml.TextSchema(), "What the pack is for."),
		packKey("extends", name, "Built-in pack whose rules are used after these."),
		packKey("exit-codes", &jsonschema.Schema{Type: "object"}, "What exit codes mean."),
		packKey("messages", &jsonschema.Schema{Type: "array"}, "Events of the output that contain text for people."),
		packKey("session", &jsonschema.Schema{Type: "object"},
			"How to find the session id in the output, and the message that a session no longer exists."),
		packKey("rules", &jsonschema.Schema{Type: "array"}, "Messages of the program and their meaning; see docs/detect.md."),
	}
}

func packKey(name string, s *jsonschema.Schema, doc string) key {
	schema := func() *jsonschema.Schema { return strictyaml.OrNull(s) }
	return strictyaml.Func(name, "", schema, func(place) {}, doc)
}

// hasKeyOf reports whether a key of any provider belongs to the account. It is false for "".
func (r *sessionReader) hasKeyOf(account string) bool {
	for _, p := range r.providers.providers {
		if slices.ContainsFunc(p.Auth, func(k ProviderKey) bool { return k.Account == account && account != "" }) {
			return true
		}
	}
	return false
}

// session reads an entry of the section sessions.
func (r *sessionReader) session(name string, at place) *Session {
	d := &Session{Spec: session.Spec{Name: name, Dir: r.Dir, Pack: "generic", On: map[string]session.Action{}}}
	before := at.Document().Problems()
	found, ok := strictyaml.Object(at, r.sessionKeys(d))
	if !ok || at.Document().Problems() > before {
		return d
	}
	d.fillDefaults(found, at, r.variable)
	if text := cmp.Or(d.CannotResume(), d.ScriptNote()); text != "" {
		found["start"].Warn("resume: %s", text)
	}
	for _, f := range d.Fallback {
		if f.NoResume != "" {
			found["fallback"].Warn("%s is not resumed if it is interrupted: %s", f.Name, f.NoResume)
		}
	}
	if d.PauseAt > 0 && d.NeedsStatusLine() && !r.hasKeyOf(d.AccountName()) {
		found["pause-at"].Warn("has no effect unless the quota of Claude Code is known, either from the command \"tideover sessions status-line\" " +
			"in a terminal or from a key of the gateway with this account")
	}
	d.Fill()
	for _, err := range strictyaml.JoinedErrors(d.Validate()) {
		here := at
		if f, ok := errors.AsType[*session.FieldError](err); ok {
			if p, there := found[f.Field]; there {
				here, err = p, f.Err
			}
		}
		here.Bad("%s", oneline.Error(err))
	}
	return d
}

// variable returns the value of a variable in the environment of a session's commands; "" if it is
// unknown.
func (r *sessionReader) variable(d *Session, name string) string {
	text, set := d.Env[name]
	if !set {
		return r.env[name]
	}
	t, err := template.Parse(text, template.WithRefs, template.Fields{})
	if err != nil {
		return ""
	}
	value, _ := template.NewSecretText(t, r.Dir).Resolve(r.Secrets) // an error is reported with the key env
	return value.Reveal()
}

// fillDefaults sets and records the values of keys that the session does not have. variable returns the
// value of an environment variable.
func (d *Session) fillDefaults(found map[string]place, at place, variable func(d *Session, name string) string) {
	if _, said := found["detect"]; !said {
		d.Pack = session.CommandPack(d.Start)
		at.RecordDefault("detect", d.Pack)
	}
	_, resumes := found["resume"]
	d.PlanResume(false)
	if len(d.Resume) > 0 && !resumes {
		at.RecordDefault("resume", jsonText(d.Resume))
	}
	if _, said := found["fallback-after"]; !said && len(d.Fallback) > 0 {
		d.FallbackAfter = session.DefaultFallbackAfter
		at.RecordDefault("fallback-after", "1h")
	}
	d.PlanAccount(func(name string) string { return variable(d, name) })
	if _, said := found["account"]; !said {
		at.RecordDefault("account", cmp.Or(d.AccountName(), account.None))
	}
}

// readArguments reads a command. [session.Spec.Validate] checks its templates.
func readArguments(at place) (argv []string) {
	readCommandLine(at, func(at place) *template.Text {
		s, ok := at.Text()
		if literal, found := strictyaml.KnownSecret(s); found {
			template.RefuseLiteral(at, literal, template.WithoutRefs)
		} else if ok {
			argv = append(argv, s)
		}
		return nil
	})
	return argv
}

// secretEnv reads the environment of a session. The values keep their references, which
// are resolved when a command starts.
func (r *sessionReader) secretEnv(at place) map[string]string {
	env := map[string]string{}
	for _, e := range r.Map(at, template.Fields{}, wrongVariable, nil) {
		env[e.Name] = e.Text.Source()
		if _, err := template.NewSecretText(e.Text, r.Dir).Resolve(r.Secrets); err != nil && !errors.Is(err, secret.ErrUnavailable) {
			at.Bad("%s: %v", e.Name, err)
		}
	}
	return env
}

func notifierListSchema(least int) strictyaml.SchemaFunc {
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
			"The command that resumes the session, with {{.Session}}; built in for claude -p, codex exec, gemini -p, qwen, copilot -p, cursor-agent -p and opencode run. Without it, an assistant's session gives up when the assistant stops, and any other command is run again."),
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
		strictyaml.Func("pause-at", "", percentSchema,
			func(at place) { d.PauseAt = 100 * strictyaml.ReadParsed(at, parsePercent) },
			"Used share of the quota of codex or claude, such as 90%, at which nothing is started until the quota resets."),
		strictyaml.Field(&d.Account, "account", "", strictyaml.NameSchema, readAccount,
			"Account whose limit the session shares with others; none for no account. Default: the account of the assistant with the login of its configuration folder."),
		strictyaml.Duration(&d.AccountSpread, "account-spread", "30s",
			"Time over which the sessions of an account are resumed, at random, after its limit ends."),
		strictyaml.Field(&d.Fallback, "fallback", "", fallbackSchema, readSessionFallback,
			"Assistants that continue the work while a stated limit lasts, in order: claude, codex, gemini, or a command as a list with {{.Prompt}}. Default: none."),
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

// watchKeys are the keys of the section watch.
func watchKeys(w *WatchDefaults) []key {
	return []key{
		strictyaml.Bool(&w.TypeAtReset, "type-at-reset",
			"Whether to choose waiting when Claude Code asks at a limit, and to type `Continue.` and Enter into an interactive session when a limit on its screen has ended, if the user has not typed since."),
	}
}

func fallbackSchema() *jsonschema.Schema {
	name := strictyaml.ScalarSchema()
	name.MinLength = new(1)
	return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: anyOf(name, commandSchema())}
}

// readSessionFallback reads the assistants that continue a session while a limit lasts.
func readSessionFallback(at place) (list []session.Fallback) {
	at.Each(func(at place) {
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
	refuseEmpty(at, "the list is empty; leave fallback out to use none")
	return list
}

// onKeys are the keys of the map on: the reasons of a stop, each with an action as value.
func onKeys(d *Session) (keys []key) {
	for _, reason := range session.Reasons() {
		set := func(at place) { d.On[reason] = readAction(at) }
		keys = append(keys, strictyaml.Func(reason, "", actionSchema, set, "What to do after a stop for this reason."))
	}
	return keys
}

func actionSchema() *jsonschema.Schema {
	keys := actionOfKeys(new(session.Action))
	return anyOf(strictyaml.WordSchema(session.Actions...)(), strictyaml.Describe(keys))
}

func actionOfKeys(a *session.Action) []key {
	return []key{
		strictyaml.Func("do", session.DoResume, strictyaml.WordSchema(session.Actions...), func(at place) {
			if word := strictyaml.ReadWord(at, session.Actions...); word != "" {
				parsed, _ := session.ParseAction(word)
				a.Do = parsed.Do
			}
		}, "The action."),
		strictyaml.Int(&a.Attempts, "attempts", "", 1,
			"How many times in a row, before the session gives up."),
	}
}

// readAction reads the action after a stop, a word or a map.
func readAction(at place) (a session.Action) {
	if at.IsMap() {
		strictyaml.Object(at, actionOfKeys(&a))
		return a
	}
	return strictyaml.ReadParsed(at, session.ParseAction)
}
