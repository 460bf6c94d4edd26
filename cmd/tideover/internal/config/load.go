package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// Source is what a configuration is made of.
type Source struct {
	Path     string            // of the file; empty means that there is none
	Data     []byte            // the file's content, if it has been read already; relative paths in it start at Path's folder
	Environ  []string          // as from os.Environ; nil means the process's
	Flags    map[string]string // given on the command line, by the server's key: {"listen": "127.0.0.1:0"}; or by another section's: "gateway.listen"
	Redactor *secret.Redactor  // learns the value of every secret that is looked up; may be nil
}

// digest tells two contents of a file apart.
type digest = [sha256.Size]byte

// Load reads and checks the configuration. Its error is [FieldErrors] when the
// content is at fault.
func Load(src Source) (*Config, error) {
	cfg, _, err := load(src)
	return cfg, err
}

// Check is [Load] for whoever only wants to know what is wrong.
func Check(src Source) error {
	_, err := Load(src)
	return err
}

// load is Load with the digest of what was read, which a watcher needs also when
// it is wrong.
func load(src Source) (*Config, digest, error) {
	l, err := newLoader(src)
	if err != nil {
		return nil, digest{}, err
	}
	data, err := content(src)
	if err != nil {
		return nil, digest{}, err
	}
	l.cfg.digest = sha256.Sum256(data)
	l.file(data)
	if err := l.result(); err != nil {
		return nil, l.cfg.digest, err
	}
	l.cfg.warnings = l.sorted(l.warnings)
	return l.cfg, l.cfg.digest, nil
}

// content reads the file, and no more of it than could be accepted.
func content(src Source) ([]byte, error) {
	if src.Data != nil || src.Path == "" {
		return src.Data, nil
	}
	// Looked at before it is opened: to open a pipe waits for whoever writes to it.
	info, err := os.Stat(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("config: %s is not a regular file, but %s", src.Path, fileKind(info.Mode()))
	}
	if err := fileaccess.Check(src.Path, info, fileaccess.Others); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	f, err := os.Open(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(data) == 0 {
		data = []byte{} // an empty file is not the same as none
	}
	return data, nil
}

// fileKind names what is not a regular file.
func fileKind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// loader is the work of one Load.
type loader struct {
	name     string // of the file, in messages
	dir      string // of the file
	none     bool   // there is no file
	env      environment
	flags    map[string]string
	lines    []string
	cfg      *Config
	problems []*FieldError
	literals []string          // secrets that stand in the file itself
	hidden   map[int]int       // columns from which on a line is not quoted
	later    map[string]bool   // names of policies that have not been read yet
	spenders map[string]bool   // names of policies that say budget=none
	second   place             // of engine.second-place
	drafts   map[string]*draft // of the workflows
	commands []notifyCommand

	ownCommands []command // of steps, jobs and notifiers
	warnings    []*FieldError
}

func newLoader(src Source) (*loader, error) {
	l := &loader{name: src.Path, flags: src.Flags, env: newEnvironment(src.Environ), later: map[string]bool{}, spenders: map[string]bool{}, hidden: map[int]int{}, drafts: map[string]*draft{}}
	l.none = src.Path == "" && src.Data == nil
	if l.name == "" {
		l.name = "config"
	}
	abs, err := filepath.Abs(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: the working folder: %w", err)
	}
	l.dir = filepath.Dir(abs)
	if src.Path == "" {
		l.dir = abs
	}
	l.cfg = &Config{Policies: map[string]retry.Policy{}, Workflows: map[string]*Workflow{}, Notifiers: map[string]*Notifier{},
		Packs: map[string]*detect.Pack{}, Sessions: map[string]*Session{}, Providers: map[string]*Provider{}, dir: l.dir,
	}
	l.cfg.secrets = secret.Resolver{LookupEnv: l.env.lookup, Redactor: src.Redactor}
	l.env.learnProxies(src.Redactor)
	return l, nil
}

func (l *loader) file(data []byte) {
	l.lines = splitLines(data)
	root, err := parseYAML(data)
	switch {
	case err != nil:
		l.problem(err)
		return
	case root == nil || root.kind == nullKind:
		if !l.none {
			l.problem(errors.New("the file is empty; it starts with `version: 1`"))
			return
		}
		root = &node{kind: mapKind, pairs: []pair{{given("version", "default"), given("1", "default")}}}
	}
	for _, section := range []string{"engine", "server", "audit", "alarm", "gateway"} {
		// They are there also when the file does not speak of them.
		if root.kind == mapKind && root.get(section) == nil {
			root.pairs = append(root.pairs, pair{given(section, "default"), &node{kind: mapKind}})
		}
	}
	object(l, place{"", root}, rootKeys, l.cfg)
	l.checkCommands()
}

// rootKeys are the sections of the file.
var rootKeys = []key[Config]{
	{
		name: "version", required: true, doc: "Version of this file's format.",
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Const: new(any(1))} },
		set: func(l *loader, at place, _ *Config) {
			switch fromFile := at.node.origin == ""; {
			case at.node.text != "1":
				l.bad(at, "%q is not a version that is understood; this one understands 1", at.node.text)
			case fromFile && at.node.kind != intKind:
				l.bad(at, "the version is a number; write it without quotes")
			}
		},
	},
	{
		name: "policies", doc: "Named policies: how long to wait, when to stop. A name can be used wherever a policy is expected.",
		schema: func() *jsonschema.Schema { return namedSchema(policySchema()) },
		set:    func(l *loader, at place, _ *Config) { l.policies(at) },
	},
	{
		name: "notify", doc: "Ways to tell somebody what happened, by name.",
		schema: func() *jsonschema.Schema { return namedSchema(notifySchema()) },
		set: func(l *loader, at place, c *Config) {
			l.named(at, "notifier", func(name string, at place) { c.Notifiers[name] = l.notifier(name, at) })
		},
	},
	{ // before the workflows, whose steps use them
		name: "providers", doc: "Remote APIs that the gateway and steps use, by name: /p/name/ at the gateway.",
		schema: func() *jsonschema.Schema { return namedSchema(orNull(describe(providerKeys))) },
		set:    func(l *loader, at place, _ *Config) { l.providers(at) },
	},
	{
		name: "gateway", doc: "How callers reach the providers. Each key is also a variable, TIDEOVER_GATEWAY_LISTEN for listen.",
		schema: func() *jsonschema.Schema { return orNull(describe(gatewayKeys)) },
		set:    func(l *loader, at place, c *Config) { l.gateway(at, &c.Gateway) },
	},
	{
		name: "workflows", doc: "Workflows by name.",
		schema: func() *jsonschema.Schema {
			s := namedSchema(workflowSchema())
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: `^session\.|^notify\.|^nip90\.|` + alarmPattern}
			return s
		},
		set: func(l *loader, at place, c *Config) {
			l.reserved(at)
			for _, p := range at.node.pairs {
				if name := p.key.text; slices.ContainsFunc(ownPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) {
					l.bad(place{at.path, p.key}, "%q begins like the runs of sessions, messages and jobs, which is reserved", name)
				}
			}
			l.named(at, "workflow", func(name string, at place) {
				c.names = append(c.names, name)
				c.Workflows[name] = l.workflow(name, at)
			})
		},
	},
	{ // before the server and the sessions, which ask whether there is a cluster
		name: "engine", doc: "Where runs are kept: in the server's folder, or shared with other processes on NATS JetStream. Each key is also a variable, TIDEOVER_ENGINE_NATS for nats.",
		schema: func() *jsonschema.Schema { return orNull(describe(engineKeys)) },
		set:    func(l *loader, at place, c *Config) { l.engine(at, &c.Engine) },
	},
	{
		name: "server", doc: "How tideover serve runs. Each key is also a variable, TIDEOVER_SERVER_LISTEN for listen.",
		schema: func() *jsonschema.Schema { return orNull(describe(serverKeys)) },
		set:    func(l *loader, at place, c *Config) { l.server(at, &c.Server) },
	},
	{ // after the server, in whose data it is
		name: "audit", doc: "The trail of events on the disk.",
		schema: func() *jsonschema.Schema { return orNull(describe(auditKeys)) },
		set:    func(l *loader, at place, c *Config) { l.audit(at, &c.Audit) },
	},
	{
		name: "alarm", doc: "When retries multiply the load so much that somebody should know.",
		schema: func() *jsonschema.Schema { return orNull(describe(stormKeys)) },
		set:    func(l *loader, at place, c *Config) { l.storms(at, &c.Alarm) },
	},
	{
		name: "tracing", doc: "Where spans of attempts are sent; nowhere unless said.",
		schema: func() *jsonschema.Schema { return describe(tracingKeys) },
		set:    func(l *loader, at place, c *Config) { c.Tracing = l.tracing(at) },
	},
	{
		name: "detect", doc: "Packs of rules by which the stop of a session is understood, beside those that are built in.",
		schema: func() *jsonschema.Schema { return namedSchema(describe(packKeys)) },
		set:    func(l *loader, at place, _ *Config) { l.named(at, "pack", l.packOf) },
	},
	{
		name: "sessions", doc: "Long commands that are kept going through their limits, by name.",
		schema: func() *jsonschema.Schema {
			s := namedSchema(describe(sessionKeys))
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: alarmPattern}
			return s
		},
		set: func(l *loader, at place, c *Config) {
			l.reserved(at) // a session is a workflow, too
			if c.Engine.Clustered() && len(at.node.pairs) > 0 {
				l.bad(at, "a session lives on one machine, and with engine.nats any machine may run it; keep sessions with tideover watch, or with a tideover serve of its own file")
			}
			l.named(at, "session", func(name string, at place) {
				c.sessions = append(c.sessions, name)
				c.Sessions[name] = l.session(name, at)
			})
		},
	},
	{
		name: "watch", doc: "What holds for every tideover watch whose flags do not say otherwise.",
		schema: func() *jsonschema.Schema { return orNull(describe(watchKeys)) },
		set: func(l *loader, at place, c *Config) {
			if at.node.kind != nullKind {
				object(l, at, watchKeys, &c.Watch)
			}
		},
	},
	{ // after the workflows, which it may name
		name: "nip90", doc: "Jobs that are taken from Nostr relays as NIP-90 has it, and answered there; none unless said.",
		schema: func() *jsonschema.Schema { return describe(nip90Keys) },
		set:    func(l *loader, at place, c *Config) { c.NIP90 = l.nip90(at) },
	},
}

// ownPrefixes begin the names of workflows that are not the file's.
var ownPrefixes = []string{session.Prefix, "notify.", jobPrefix}

// reserved refuses names that end like those of the alarms.
func (l *loader) reserved(at place) {
	for _, p := range at.node.pairs {
		if strings.HasSuffix(p.key.text, alarmSuffix) {
			l.bad(place{at.path, p.key}, "%q ends in %s, which is reserved: so the runs of on-give-up are called", p.key.text, alarmSuffix)
		}
	}
}

// value records a setting. What looks like a secret is refused where secrets are
// likely, and not shown elsewhere, such as in a description.
func (l *loader) value(at place, text string) {
	origin := at.node.origin
	if origin == "" {
		origin = fmt.Sprintf("%s:%d", l.name, at.node.line)
	}
	l.cfg.values = append(l.cfg.values, Value{at.path, maskKnown(text), origin})
}

// environment is the variables by name.
type environment map[string]string

func newEnvironment(environ []string) environment {
	if environ == nil {
		environ = os.Environ()
	}
	env := make(environment, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "" {
			env[name] = value
		}
	}
	return env
}

func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// withPrefix returns the names that start with the prefix, sorted.
func (e environment) withPrefix(prefix string) (names []string) {
	for name := range e {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
