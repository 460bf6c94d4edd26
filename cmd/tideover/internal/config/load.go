package config

import (
	"cmp"
	"crypto/sha256"
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
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
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

// Load reads and checks the configuration. Its error is [strictyaml.FieldErrors] when the
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
	data, err := content(src)
	if err != nil {
		return nil, digest{}, err
	}
	l, err := newLoader(src, data)
	if err != nil {
		return nil, digest{}, err
	}
	l.cfg.digest = sha256.Sum256(data)
	l.file()
	if err := l.doc.Err(); err != nil {
		return nil, l.cfg.digest, err
	}
	l.cfg.values, l.cfg.warnings = l.doc.Values(), l.doc.Warnings()
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
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxFile+1))
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
	template.Reader
	doc      *strictyaml.Document
	none     bool // there is no file
	env      environment
	flags    map[string]string
	cfg      *Config
	later    map[string]bool   // names of policies that have not been read yet
	spenders map[string]bool   // names of policies that say budget=none
	second   strictyaml.Place  // of engine.second-place
	drafts   map[string]*draft // of the workflows
	commands []notifyCommand

	ownCommands []command // of steps, jobs and notifiers
}

func newLoader(src Source, data []byte) (*loader, error) {
	l := &loader{flags: src.Flags, env: newEnvironment(src.Environ), later: map[string]bool{}, spenders: map[string]bool{}, drafts: map[string]*draft{}}
	l.doc = strictyaml.NewDocument(cmp.Or(src.Path, "config"), data)
	l.none = src.Path == "" && src.Data == nil
	abs, err := filepath.Abs(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: the working folder: %w", err)
	}
	l.Dir = filepath.Dir(abs)
	if src.Path == "" {
		l.Dir = abs
	}
	l.cfg = &Config{Policies: map[string]retry.Policy{}, Workflows: map[string]*Workflow{}, Notifiers: map[string]*Notifier{},
		Packs: map[string]*detect.Pack{}, Sessions: map[string]*Session{}, Providers: map[string]*Provider{}, dir: l.Dir,
	}
	l.Secrets = secret.Resolver{LookupEnv: l.env.lookup, Redactor: src.Redactor}
	l.cfg.secrets = l.Secrets
	l.env.learnProxies(src.Redactor)
	return l, nil
}

func (l *loader) file() {
	root := l.doc.Root
	switch {
	case l.doc.Problems() > 0: // it is not readable
		return
	case root.Empty() && !l.none:
		l.doc.AddProblem("the file is empty; it starts with `version: 1`")
		return
	case root.Empty():
		root.Node = strictyaml.NewMap()
		root.Node.Set("version", strictyaml.NewText("1", "default"))
	}
	for _, section := range []string{"engine", "server", "audit", "alarm", "gateway"} {
		// They have defaults also if the file does not have the section.
		if root.IsMap() && root.Node.Get(section) == nil {
			root.Node.Set(section, strictyaml.NewMap())
		}
	}
	strictyaml.Object(l, root, rootKeys, l.cfg)
	l.checkCommands()
}

// rootKeys are the sections of the file.
var rootKeys = []strictyaml.Key[*loader, Config]{
	{
		Name: "version", Required: true, Doc: "Version of this file's format.",
		Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Const: new(any(1))} },
		Set: func(l *loader, at strictyaml.Place, _ *Config) {
			switch fromFile := at.Node.Origin == ""; {
			case at.Node.Text != "1":
				at.Bad("%q is not a version that is understood; this one understands 1", at.Node.Text)
			case fromFile && at.Node.Kind != strictyaml.KindInt:
				at.Bad("the version is a number; write it without quotes")
			}
		},
	},
	{
		Name: "policies", Doc: "Named policies: how long to wait, when to stop. A name can be used wherever a policy is expected.",
		Schema: func() *jsonschema.Schema { return strictyaml.NamedSchema(policySchema()) },
		Set:    func(l *loader, at strictyaml.Place, _ *Config) { l.policies(at) },
	},
	{
		Name: "notify", Doc: "Ways to tell somebody what happened, by name.",
		Schema: func() *jsonschema.Schema { return strictyaml.NamedSchema(notifySchema()) },
		Set: func(l *loader, at strictyaml.Place, c *Config) {
			at.EachName("notifier", func(name string, at strictyaml.Place) { c.Notifiers[name] = l.notifier(name, at) })
		},
	},
	{ // before the workflows, whose steps use them
		Name: "providers", Doc: "Remote APIs that the gateway and steps use, by name: /p/name/ at the gateway.",
		Schema: func() *jsonschema.Schema {
			return strictyaml.NamedSchema(strictyaml.OrNull(strictyaml.Describe(providerKeys)))
		},
		Set: func(l *loader, at strictyaml.Place, _ *Config) { l.providers(at) },
	},
	{
		Name: "gateway", Doc: "How callers reach the providers. Each key is also a variable, TIDEOVER_GATEWAY_LISTEN for listen.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(gatewayKeys)) },
		Set:    func(l *loader, at strictyaml.Place, c *Config) { l.gateway(at, &c.Gateway) },
	},
	{
		Name: "workflows", Doc: "Workflows by name.",
		Schema: func() *jsonschema.Schema {
			s := strictyaml.NamedSchema(workflowSchema())
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: `^session\.|^notify\.|^nip90\.|` + alarmPattern}
			return s
		},
		Set: func(l *loader, at strictyaml.Place, c *Config) {
			l.reserved(at)
			for _, p := range at.Node.Pairs {
				if name := p.Key.Text; slices.ContainsFunc(ownPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) {
					at.WithNode(p.Key).Bad("%q begins like the runs of sessions, messages and jobs, which is reserved", name)
				}
			}
			at.EachName("workflow", func(name string, at strictyaml.Place) {
				c.names = append(c.names, name)
				c.Workflows[name] = l.workflow(name, at)
			})
		},
	},
	{ // before the server and the sessions, which ask whether there is a cluster
		Name: "engine", Doc: "Where runs are kept: in the server's folder, or shared with other processes on NATS JetStream. Each key is also a variable, TIDEOVER_ENGINE_NATS for nats.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(engineKeys)) },
		Set:    func(l *loader, at strictyaml.Place, c *Config) { l.engine(at, &c.Engine) },
	},
	{
		Name: "server", Doc: "How tideover serve runs. Each key is also a variable, TIDEOVER_SERVER_LISTEN for listen.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(serverKeys)) },
		Set:    func(l *loader, at strictyaml.Place, c *Config) { l.server(at, &c.Server) },
	},
	{ // after the server, in whose data it is
		Name: "audit", Doc: "The trail of events on the disk.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(auditKeys)) },
		Set:    func(l *loader, at strictyaml.Place, c *Config) { l.audit(at, &c.Audit) },
	},
	{
		Name: "alarm", Doc: "When retries multiply the load so much that somebody should know.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(stormKeys)) },
		Set:    func(l *loader, at strictyaml.Place, c *Config) { l.storms(at, &c.Alarm) },
	},
	{
		Name: "tracing", Doc: "Where spans of attempts are sent; nowhere unless said.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(tracingKeys) },
		Set:    func(l *loader, at strictyaml.Place, c *Config) { c.Tracing = l.tracing(at) },
	},
	{
		Name: "detect", Doc: "Packs of rules by which the stop of a session is understood, beside those that are built in.",
		Schema: func() *jsonschema.Schema { return strictyaml.NamedSchema(strictyaml.Describe(packKeys)) },
		Set:    func(l *loader, at strictyaml.Place, _ *Config) { at.EachName("pack", l.packOf) },
	},
	{
		Name: "sessions", Doc: "Long commands that are kept going through their limits, by name.",
		Schema: func() *jsonschema.Schema {
			s := strictyaml.NamedSchema(strictyaml.Describe(sessionKeys))
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: alarmPattern}
			return s
		},
		Set: func(l *loader, at strictyaml.Place, c *Config) {
			l.reserved(at) // a session is a workflow, too
			if c.Engine.Clustered() && len(at.Node.Pairs) > 0 {
				at.Bad("a session lives on one machine, and with engine.nats any machine may run it; keep sessions with tideover watch, or with a tideover serve of its own file")
			}
			at.EachName("session", func(name string, at strictyaml.Place) {
				c.sessions = append(c.sessions, name)
				c.Sessions[name] = l.session(name, at)
			})
		},
	},
	{
		Name: "watch", Doc: "What holds for every tideover watch whose flags do not say otherwise.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(watchKeys)) },
		Set: func(l *loader, at strictyaml.Place, c *Config) {
			if at.Node.Kind != strictyaml.KindNull {
				strictyaml.Object(l, at, watchKeys, &c.Watch)
			}
		},
	},
	{ // after the workflows, which it may name
		Name: "nip90", Doc: "Jobs that are taken from Nostr relays as NIP-90 has it, and answered there; none unless said.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(nip90Keys) },
		Set:    func(l *loader, at strictyaml.Place, c *Config) { c.NIP90 = l.nip90(at) },
	},
}

// ownPrefixes begin the names of workflows that are not the file's.
var ownPrefixes = []string{session.Prefix, "notify.", jobPrefix}

// reserved refuses names that end like those of the alarms.
func (l *loader) reserved(at strictyaml.Place) {
	for _, p := range at.Node.Pairs {
		if strings.HasSuffix(p.Key.Text, alarmSuffix) {
			at.WithNode(p.Key).Bad("%q ends in %s, which is reserved: so the runs of on-give-up are called", p.Key.Text, alarmSuffix)
		}
	}
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

// learnProxies tells the redactor of proxies that want a password. Nobody refers to
// these variables: net/http reads them, commands inherit them, and both repeat them.
func (e environment) learnProxies(r *secret.Redactor) {
	if r == nil {
		return
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		value := e[name]
		if !strings.Contains(value, "@") {
			continue
		}
		if !strings.Contains(value, "://") {
			value = "http://" + value // as net/http reads it
		}
		r.Add(value)
	}
}
