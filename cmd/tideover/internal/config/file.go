package config

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// fileReader reads a whole file. It has a reader for each section that others refer to.
type fileReader struct {
	*sharedReader
	doc    *strictyaml.Document
	noFile bool // there are only variables, flags and defaults
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

func newFileReader(src Source, data []byte) (*fileReader, error) {
	dir, err := filepath.Abs(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: the working folder: %w", err)
	}
	if src.Path != "" {
		dir = filepath.Dir(dir)
	}
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
	}, nil
}

// read fills the configuration.
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
		// These sections have defaults also if the file does not have them.
		if root.IsMap() && root.Node.Get(section) == nil {
			root.Node.Set(section, strictyaml.NewMap())
		}
	}
	strictyaml.Object(f, root, rootKeys, f.cfg)
	crossCheckCommands(f.commands, f.cfg.Server.Inherit)
}

// rootKeys are the sections of the file.
var rootKeys = []key[*fileReader, Config]{
	{
		Name: "version", Required: true, Doc: "Version of this file's format.",
		Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Const: new(any(1))} },
		Set: func(_ *fileReader, at place, _ *Config) {
			switch fromFile := at.Node.Origin == ""; {
			case at.Node.Text != "1":
				at.Bad("unknown version %q; this release supports version 1", at.Node.Text)
			case fromFile && at.Node.Kind != strictyaml.KindInt:
				at.Bad("the version is a number; write it without quotes")
			}
		},
	},
	{
		Name: "policies", Doc: "Retry policies by name: how long to wait and when to stop. A name can be used wherever a policy is expected.",
		Schema: func() *jsonschema.Schema { return strictyaml.NamedSchema(policySchema()) },
		Set:    func(f *fileReader, at place, _ *Config) { f.policies.section(at) },
	},
	{
		Name: "notify", Doc: "Notifiers by name: where messages about runs and providers are sent.",
		Schema: func() *jsonschema.Schema { return strictyaml.NamedSchema(notifySchema()) },
		Set:    func(f *fileReader, at place, _ *Config) { f.notifiers.section(at) },
	},
	{ // before the workflows, whose steps use them
		Name: "providers", Doc: "Remote APIs that the gateway and steps use, by name. The gateway serves each at /p/name/.",
		Schema: func() *jsonschema.Schema {
			return strictyaml.NamedSchema(strictyaml.OrNull(strictyaml.Describe(providerKeys)))
		},
		Set: func(f *fileReader, at place, c *Config) {
			f.providers.section(at)
			c.providers = f.providers.names
		},
	},
	{
		Name: "gateway", Doc: "How clients reach the providers. Each key can also be set by an environment variable, such as TIDEOVER_GATEWAY_LISTEN for listen.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(gatewayKeys)) },
		Set:    func(f *fileReader, at place, c *Config) { readGateway(f.sharedReader, at, &c.Gateway) },
	},
	{
		Name: "workflows", Doc: "Workflows by name.",
		Schema: func() *jsonschema.Schema {
			s := strictyaml.NamedSchema(workflowSchema())
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: `^session\.|^notify\.|^nip90\.|` + alarmPattern}
			return s
		},
		Set: func(f *fileReader, at place, c *Config) {
			f.workflows.section(at)
			c.names = f.workflows.names
		},
	},
	{ // before the server and the sessions, which ask whether there is a cluster
		Name: "engine", Doc: "Where runs are stored: in server.data, or shared with other processes in NATS JetStream. Each key can also be set by an environment variable, such as TIDEOVER_ENGINE_NATS for nats.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(engineKeys)) },
		Set:    func(f *fileReader, at place, c *Config) { f.engine.section(at, &c.Engine) },
	},
	{
		Name: "server", Doc: "Settings of tideover serve. Each key can also be set by an environment variable, such as TIDEOVER_SERVER_LISTEN for listen.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(serverKeys)) },
		Set:    func(f *fileReader, at place, c *Config) { crossCheckServer(f, f.server.section(at, &c.Server)) },
	},
	{ // after the server, in whose data it is
		Name: "audit", Doc: "The audit log: a file with all events.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(auditKeys)) },
		Set:    func(f *fileReader, at place, c *Config) { readAudit(f.sharedReader, at, &c.Audit, c.Server.Data) },
	},
	{
		Name: "alarm", Doc: "When to raise an alarm because retries multiply the load.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(stormKeys)) },
		Set:    func(_ *fileReader, at place, c *Config) { readAlarm(at, &c.Alarm) },
	},
	{
		Name: "tracing", Doc: "Where spans of attempts are sent. Default: tracing is off.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(tracingKeys) },
		Set:    func(f *fileReader, at place, c *Config) { c.Tracing = readTracing(f.sharedReader, at) },
	},
	{
		Name: "detect", Doc: "Your own packs of rules that find out why a session stopped, in addition to the built-in packs.",
		Schema: func() *jsonschema.Schema { return strictyaml.NamedSchema(strictyaml.Describe(packKeys)) },
		Set:    func(f *fileReader, at place, _ *Config) { at.EachName("pack", f.sessions.pack) },
	},
	{
		Name: "sessions", Doc: "Long-running commands by name, which are resumed after usage limits and failures.",
		Schema: func() *jsonschema.Schema {
			s := strictyaml.NamedSchema(strictyaml.Describe(sessionKeys))
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: alarmPattern}
			return s
		},
		Set: func(f *fileReader, at place, c *Config) {
			checkReserved(at) // a session is a workflow, too
			crossCheckSessions(at, c)
			at.EachName("session", func(name string, at place) {
				c.sessions = append(c.sessions, name)
				c.Sessions[name] = f.sessions.session(name, at)
			})
		},
	},
	{
		Name: "watch", Doc: "Defaults for the flags of tideover watch.",
		Schema: func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(watchKeys)) },
		Set: func(f *fileReader, at place, c *Config) {
			if !at.Empty() {
				strictyaml.Object(f.sessions, at, watchKeys, &c.Watch)
			}
		},
	},
	{ // after the workflows, which it may name
		Name: "nip90", Doc: "NIP-90 jobs to accept from Nostr relays and answer there. Default: none.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(nip90Keys) },
		Set:    func(f *fileReader, at place, c *Config) { c.NIP90 = f.jobs.section(at) },
	},
}
