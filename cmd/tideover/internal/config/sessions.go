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

// Session is a session that serve keeps going.
type Session struct {
	session.Spec
	Notify []string // names of notifiers that send messages about it
}

// WatchDefaults are the defaults of the flags of `tideover watch`.
type WatchDefaults struct {
	TypeAtReset bool // the prompt to continue is typed when a limit on the screen is over
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

// Detect returns the pack of a name: one of the file, or a built-in one, which has
// no rules here. Without a name it is the fallback.
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

// Expand writes out the references in a value of a session's environment.
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

// pack reads a pack of the file.
func (r *sessionReader) pack(name string, at place) {
	if slices.Contains(detect.Names(), name) {
		at.Bad("%q is the name of a built-in pack; choose another name, and set extends: %[1]s", name)
		return
	}
	if _, ok := strictyaml.Object(at, packKeys()); !ok {
		return
	}
	text, err := json.Marshal(at.Node.Plain()) // which is YAML too
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

// packKeys returns the keys of a pack. What they contain is read by package detect.
func packKeys() []key {
	name := strictyaml.WordSchema(detect.Names()...)
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

// hasKeyOf reports whether a key of the gateway names the account.
func (r *sessionReader) hasKeyOf(account string) bool {
	for _, p := range r.providers.providers {
		if slices.ContainsFunc(p.Auth, func(k ProviderKey) bool { return k.Account == account && account != "" }) {
			return true
		}
	}
	return false
}

// session reads a session.
func (r *sessionReader) session(name string, at place) *Session {
	d := &Session{Spec: session.Spec{Name: name, Dir: r.Dir, Pack: "generic", On: map[string]session.Action{}}}
	before := at.Document().Problems()
	found, ok := strictyaml.Object(at, r.sessionKeys(d))
	if !ok || at.Document().Problems() > before {
		return d
	}
	if _, said := found["detect"]; !said {
		d.Pack = session.CommandPack(d.Start)
		at.RecordDefault("detect", d.Pack)
	}
	_, resumes := found["resume"]
	d.PlanResume(false)
	if len(d.Resume) > 0 && !resumes {
		at.RecordDefault("resume", jsonText(d.Resume))
	}
	if text := d.CannotResume(); text != "" {
		found["start"].Warn("resume: %s", text)
	}
	for _, f := range d.Fallback {
		if f.NoResume != "" {
			found["fallback"].Warn("%s is not resumed if it is interrupted: %s", f.Name, f.NoResume)
		}
	}
	if _, said := found["fallback-after"]; !said && len(d.Fallback) > 0 {
		d.FallbackAfter = session.DefaultFallbackAfter
		at.RecordDefault("fallback-after", "1h")
	}
	if d.PauseAt > 0 && d.NeedsStatusLine() && !r.hasKeyOf(d.AccountName()) {
		found["pause-at"].Warn("Claude Code states its quota on a terminal, to the command \"tideover sessions status-line\", and to keys of the gateway with this account: " +
			"pause-at has no effect without either")
	}
	if _, said := found["account"]; !said {
		at.RecordDefault("account", cmp.Or(d.AccountName(), account.None))
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

// readArguments reads a command, whose templates the session checks.
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

// secretEnv reads the environment of a session. It is stored as it is written.
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
