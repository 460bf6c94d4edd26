package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
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
	sessions  *sessionReader
	jobs      *jobReader
}

// openFile reads the content of a source, which is not checked yet.
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

// newFileReader returns a reader of data, whose relative paths start at dir.
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
		engine:   &engineReader{sharedReader: shared},
		sessions: &sessionReader{sharedReader: shared, policies: policies, notifiers: notifiers, providers: providers, packs: cfg.Packs},
		jobs:     &jobReader{sharedReader: shared, policies: policies, notifiers: notifiers, workflows: workflows},
	}
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
	strictyaml.Object(root, f.rootKeys(f.cfg))
	crossCheckCommands(f.commands, f.cfg.Server.Inherit)
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
		// Before the workflows, whose steps use them.
		namedSection("providers", f.providers.schema, "", func(at place) {
			f.providers.section(at)
			c.providers = f.providers.names
		}, "Remote APIs that the gateway and steps use, by name. The gateway serves each at /p/name/."),
		section("gateway", f.gatewayKeys(&c.Gateway), func(at place) { readGateway(f.sharedReader, at, &c.Gateway) },
			"How clients reach the providers. Each key can also be set by an environment variable, such as TIDEOVER_GATEWAY_LISTEN for listen."),
		namedSection("workflows", describe(f.workflows.workflowKeys(newDraft(""))), `^session\.|^notify\.|^nip90\.|`+alarmPattern, func(at place) {
			f.workflows.section(at)
			c.names = f.workflows.names
		}, "Workflows by name."),
		// Before the server and the sessions, which ask whether there is a cluster.
		section("engine", f.engine.engineKeys(&c.Engine), func(at place) { f.engine.section(at, &c.Engine) },
			"Where runs are stored: in server.data, or shared with other processes in NATS JetStream. Each key can also be set by an environment variable, such as TIDEOVER_ENGINE_NATS for nats."),
		section("server", f.serverKeys(&c.Server), func(at place) {
			crossCheckServer(f, readServer(f.sharedReader, at, &c.Server))
		}, "Settings of tideover serve. Each key can also be set by an environment variable, such as TIDEOVER_SERVER_LISTEN for listen."),
		// After the server, in whose data it is.
		section("audit", f.auditKeys(&c.Audit), func(at place) { readAudit(f.sharedReader, at, &c.Audit, c.Server.Data) },
			"The audit log: a file with all events."),
		section("alarm", stormKeys(&c.Alarm), func(at place) { strictyaml.Object(at.OrMap(), stormKeys(&c.Alarm)) },
			"When to raise an alarm because retries multiply the load."),
		strictyaml.Field(&c.Tracing, "tracing", "", describe(f.tracingKeys(new(tracing.Config))), f.tracing,
			"Where spans of attempts are sent. Default: tracing is off."),
		namedSection("detect", describe(packKeys()), "", func(at place) { at.EachName("pack", f.sessions.pack) },
			"Your own packs of rules that find out why a session stopped, in addition to the built-in packs."),
		namedSection("sessions", describe(f.sessions.sessionKeys(new(Session))), alarmPattern, func(at place) {
			checkReserved(at) // a session is a workflow, too
			crossCheckSessions(at, c)
			at.EachName("session", func(name string, at place) {
				c.sessions = append(c.sessions, name)
				c.Sessions[name] = f.sessions.session(name, at)
			})
		}, "Long-running commands by name, which are resumed after usage limits and failures."),
		section("watch", watchKeys(&c.Watch), func(at place) { strictyaml.Object(at.OrMap(), watchKeys(&c.Watch)) },
			"Defaults for the flags of tideover watch."),
		// After the workflows, which it may name.
		strictyaml.Field(&c.NIP90, "nip90", "", describe(f.jobs.nip90Keys(new(nip90.Spec))), f.jobs.section,
			"NIP-90 jobs to accept from Nostr relays and answer there. Default: none."),
	}
}

// section is a section with fixed keys, which may be empty.
func section(name string, keys []key, read func(at place), doc string) key {
	schema := func() *jsonschema.Schema { return strictyaml.OrNull(strictyaml.Describe(keys)) }
	return strictyaml.Func(name, "", schema, read, doc)
}

// namedSection is a section whose keys are names, except those that match reserved.
func namedSection(name string, item func() *jsonschema.Schema, reserved string, read func(at place), doc string) key {
	schema := func() *jsonschema.Schema {
		s := strictyaml.NamedSchema(item())
		if reserved != "" {
			s.PropertyNames.Not = &jsonschema.Schema{Pattern: reserved}
		}
		return s
	}
	return strictyaml.Func(name, "", schema, read, doc)
}
