package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// Source has the inputs of [Load]: the file, the environment and the flags.
type Source struct {
	Path     string            // of the file; "" means that there is no file
	Data     []byte            // the file's content; nil means that Load reads Path. Relative paths in it start at Path's folder
	Environ  []string          // NAME=value, as from os.Environ; nil means the environment of the process
	Flags    map[string]string // by key of the section server, such as "listen", or by section and key, such as "gateway.listen"
	Redactor *secret.Redactor  // Load adds the value of every secret that it resolves; may be nil
}

// digest identifies the content of a file.
type digest = [sha256.Size]byte

// Load reads and checks the configuration. If the content is invalid, the error is
// [strictyaml.FieldErrors] with all problems.
func Load(src Source) (*Config, error) {
	f, err := openFile(src)
	if err != nil {
		return nil, err
	}
	f.read()
	if err := f.doc.Err(); err != nil {
		return nil, err
	}
	f.cfg.values, f.cfg.warnings = f.doc.Values(), f.doc.Warnings()
	return f.cfg, nil
}

// content returns src.Data or reads the file. It reads at most MaxFile+1 bytes, so that
// the parser can refuse a file that is too large.
func content(src Source) ([]byte, error) {
	if src.Data != nil || src.Path == "" {
		return src.Data, nil
	}
	// Check the kind before the file is opened: opening a pipe waits for a writer.
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
		data = []byte{} // nil would mean that there is no file
	}
	return data, nil
}

// fileKind names the kind of a file that is not regular.
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

// environment has the environment variables by name.
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

// learnProxies adds proxy addresses that contain credentials to the redactor. The file
// does not refer to these variables, but net/http uses them and commands inherit them,
// and both may print them.
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
			value = "http://" + value // net/http assumes this scheme, too
		}
		r.Add(value)
	}
}

// fileReader reads a whole file. It has a reader for each section that needs a state of
// its own.
type fileReader struct {
	*sharedReader
	doc    *strictyaml.Document
	noFile bool // the configuration consists of variables, flags and defaults only
	cfg    *Config

	policies  *policyReader
	notifiers *notifierReader
	providers *providerReader
	workflows *workflowReader
	engine    *engineReader
	server    serverReader
	sessions  *sessionReader
	jobs      *jobReader
}

// openFile reads the content of a source and parses it as YAML. The caller checks the
// values with [fileReader.read].
func openFile(src Source) (*fileReader, error) {
	data, err := content(src)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: the working folder: %w", err)
	}
	if src.Path != "" {
		dir = filepath.Dir(dir)
	}
	f := newFileReader(src, dir, data)
	f.cfg.digest = sha256.Sum256(data)
	return f, nil
}

// newFileReader returns a reader of data. Relative paths in data start at dir.
func newFileReader(src Source, dir string, data []byte) *fileReader {
	env := newEnvironment(src.Environ)
	env.learnProxies(src.Redactor)
	secrets := secret.Resolver{LookupEnv: env.lookup, Redactor: src.Redactor}
	cfg := &Config{Policies: map[string]retry.Policy{}, Workflows: map[string]*steps.Workflow{}, Notifiers: map[string]*notify.Spec{},
		Packs: map[string]*detect.Pack{}, Sessions: map[string]*Session{}, Providers: map[string]*Provider{}, dir: dir, secrets: secrets,
	}
	doc := strictyaml.NewDocument(cmp.Or(src.Path, "config"), data)
	shared := &sharedReader{Reader: template.Reader{Dir: dir, Secrets: secrets}, env: env, flags: src.Flags}
	policies := &policyReader{policies: cfg.Policies, later: map[string]bool{}, unlimited: map[string]bool{}}
	notifiers := &notifierReader{sharedReader: shared, policies: policies, notifiers: cfg.Notifiers}
	providers := &providerReader{sharedReader: shared, policies: policies, providers: cfg.Providers}
	workflows := &workflowReader{
		sharedReader: shared, policies: policies, providers: providers, notifiers: notifiers, workflows: cfg.Workflows, drafts: map[string]*draft{},
	}
	return &fileReader{
		sharedReader: shared, doc: doc, noFile: src.Path == "" && src.Data == nil, cfg: cfg,
		policies: policies, notifiers: notifiers, providers: providers, workflows: workflows,
		engine: &engineReader{sharedReader: shared}, server: serverReader{shared},
		sessions: &sessionReader{sharedReader: shared, policies: policies, notifiers: notifiers, providers: providers, packs: cfg.Packs},
		jobs:     &jobReader{sharedReader: shared, policies: policies, notifiers: notifiers, workflows: workflows},
	}
}

// read reads all sections into f.cfg and records their problems in f.doc.
func (f *fileReader) read() {
	root := f.doc.Root
	switch {
	case f.doc.Problems() > 0: // the file is not YAML
		return
	case root.Empty() && !f.noFile:
		f.doc.AddProblem("the file is empty; it starts with `version: 1`")
		return
	case root.Empty():
		root.Node = strictyaml.NewMap()
		root.Node.Set("version", strictyaml.NewText("1", "default"))
	}
	for _, section := range []string{"engine", "server", "audit", "alarm", "gateway"} {
		// Add these sections if the file does not have them, so that they get their defaults.
		if root.IsMap() && root.Node.Get(section) == nil {
			root.Node.Set(section, strictyaml.NewMap())
		}
	}
	strictyaml.Object(root, f.rootKeys(f.cfg))
	crossCheckCommands(f.commands, f.cfg.Server.Inherit)
	crossCheckTargets(f.targets, f.cfg.Server.AllowHosts)
	crossCheckUsers(f.workflows.answerers, f.cfg.Server.Users)
}

// rootKeys are the sections of the file.
func (f *fileReader) rootKeys(c *Config) []key {
	return []key{
		{
			Name: "version", Required: true, Doc: "Version of this file's format.",
			Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Const: new(any(1))} },
			Set: func(at place) {
				switch fromFile := at.Node.Origin == ""; {
				case at.Node.Text != "1":
					at.Bad("unknown version %q; this release supports version 1", at.Node.Text)
				case fromFile && at.Node.Kind != strictyaml.KindInt:
					at.Bad("the version is a number; write it without quotes")
				}
			},
		},
		namedSection("policies", policySchema, "", f.policies.section,
			"Retry policies by name: how long to wait and when to stop. A name can be used wherever a policy is expected."),
		namedSection("notify", oneOf(f.notifiers.notifyKeys(new(notify.Spec)), notifyKinds...), "", f.notifiers.section,
			"Notifiers by name: where messages about runs and providers are sent."),
		// Providers must be read before the workflows, whose steps use them.
		namedSection("providers", f.providers.schema, "", func(at place) {
			f.providers.section(at)
			c.providers = f.providers.names
		}, "Remote APIs that the gateway and steps use, by name. The gateway serves each at /p/name/."),
		section("gateway", gatewayKeys(f.sharedReader, &c.Gateway), func(at place) {
			readGateway(f.sharedReader, at, &c.Gateway)
		}, "How clients reach the providers. Each key can also be set by an environment variable, such as TIDEOVER_GATEWAY_LISTEN for listen."),
		namedSection("workflows", describe(f.workflows.workflowKeys(newDraft(""))), reservedPattern, func(at place) {
			f.workflows.section(at)
			c.names = f.workflows.names
		}, "Workflows by name."),
		// The engine must be read before the server and the sessions, whose checks depend
		// on whether it is a cluster.
		section("engine", f.engine.engineKeys(&c.Engine), func(at place) { f.engine.section(at, &c.Engine) },
			"Where runs are stored: in server.data, or shared with other processes in NATS JetStream. Each key can also be set by an environment variable, such as TIDEOVER_ENGINE_NATS for nats."),
		section("server", f.server.serverKeys(&c.Server), func(at place) {
			crossCheckServer(f, f.server.section(at, &c.Server))
		}, "Settings of tideover serve. Each key can also be set by an environment variable, such as TIDEOVER_SERVER_LISTEN for listen."),
		// The audit log must be read after the server: its default path is in server.data.
		section("audit", auditKeys(f.sharedReader, &c.Audit), func(at place) {
			readAudit(f.sharedReader, at, &c.Audit, c.Server.Data)
		}, "The audit log: a file with all events, refused requests, logins and changes of the configuration."),
		section("alarm", stormKeys(&c.Alarm), func(at place) { strictyaml.Object(orMap(at), stormKeys(&c.Alarm)) },
			"When to raise an alarm because retries multiply the load."),
		strictyaml.Func("tracing", "", describe(tracingKeys(f.sharedReader, new(tracing.Config))), func(at place) {
			c.Tracing = new(tracing.Config)
			strictyaml.Object(at, tracingKeys(f.sharedReader, c.Tracing))
		}, "Where spans of attempts are sent. Default: tracing is off."),
		namedSection("detect", describe(packKeys()), "", func(at place) { at.EachName("pack", f.sessions.pack) },
			"Your own packs of rules that find out why a session stopped, in addition to the built-in packs."),
		namedSection("sessions", describe(f.sessions.sessionKeys(new(Session))), alarmPattern, func(at place) {
			checkReserved(at) // the engine runs a session as a workflow
			crossCheckSessions(at, c)
			at.EachName("session", func(name string, at place) {
				c.sessions = append(c.sessions, name)
				c.Sessions[name] = f.sessions.session(name, at)
			})
		}, "Long-running commands by name, which are resumed after usage limits and failures."),
		section("watch", watchKeys(&c.Watch), func(at place) { strictyaml.Object(orMap(at), watchKeys(&c.Watch)) },
			"Defaults for the flags of tideover watch."),
		// NIP-90 jobs must be read after the workflows, which they may name.
		strictyaml.Field(&c.NIP90, "nip90", "", describe(f.jobs.nip90Keys(new(nip90.Spec))), f.jobs.section,
			"NIP-90 jobs to accept from Nostr relays and answer there. Default: none."),
	}
}

// section returns the root key for a section with fixed keys. The section may be empty.
func section(name string, keys []key, read func(at place), doc string) key {
	schema := func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(keys)) }
	return strictyaml.Func(name, "", schema, read, doc)
}

// namedSection returns the root key for a section whose keys are names that the author of
// the file chooses. Its schema refuses names that match the pattern reserved, if it is not "".
func namedSection(name string, item strictyaml.SchemaFunc, reserved string, read func(at place), doc string) key {
	schema := func() *jsonschema.Schema {
		s := strictyaml.NamedSchema(item())
		if reserved != "" {
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: reserved}
		}
		return s
	}
	return strictyaml.Func(name, "", schema, read, doc)
}
