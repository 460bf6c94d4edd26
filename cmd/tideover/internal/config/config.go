package config

import (
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// Config is the whole configuration. It does not change after [Load] and is
// shared; a reload makes a new one.
type Config struct {
	Policies  map[string]retry.Policy
	Workflows map[string]*steps.Workflow
	Notifiers map[string]*notify.Spec
	Packs     map[string]*detect.Pack // of the file; others are built in
	Sessions  map[string]*Session
	Watch     WatchDefaults
	Providers map[string]*Provider
	Gateway   Gateway
	NIP90     *nip90.Spec // nil means that no jobs are taken from relays
	Server    Server
	Engine    cluster.Config
	Audit     Audit
	Alarm     storm.Rule      // when retries are a storm
	Tracing   *tracing.Config // nil means that no spans are made

	names     []string // of the workflows, in the file's order
	sessions  []string // the same of the sessions
	providers []string // the same of the providers
	dir       string   // where relative paths of references start
	values    []strictyaml.Value
	secrets   secret.Resolver
	digest    digest
	warnings  []*strictyaml.FieldError
}

// Warnings returns what is valid in the file, but probably a mistake.
func (c *Config) Warnings() []*strictyaml.FieldError { return c.warnings }

// WorkflowNames returns the names of the workflows in the order of the file.
func (c *Config) WorkflowNames() []string { return c.names }

// OrderedWorkflows returns the workflows in the order of the file.
func (c *Config) OrderedWorkflows() []*steps.Workflow {
	list := make([]*steps.Workflow, len(c.names))
	for i, name := range c.names {
		list[i] = c.Workflows[name]
	}
	return list
}

// OrderedNotifiers returns the notifiers, sorted by name.
func (c *Config) OrderedNotifiers() []*notify.Spec {
	list := make([]*notify.Spec, 0, len(c.Notifiers))
	for _, name := range slices.Sorted(maps.Keys(c.Notifiers)) {
		list = append(list, c.Notifiers[name])
	}
	return list
}

// NotifyEnv returns what the senders of notifiers need.
func (c *Config) NotifyEnv() notify.Env {
	return notify.Env{Secrets: c.secrets, Hidden: c.HiddenVariables(), Inherit: c.Server.Inherit}
}

// Secrets returns the resolver of references. It reads the environment of [Source], and
// adds every value to its redactor.
func (c *Config) Secrets() secret.Resolver { return c.secrets }

// Server is how `tideover serve` runs.
type Server struct {
	Listen        string               // host:port
	Hosts         []string             // further names and addresses under which it may be asked, without port
	Socket        string               // path of the unix socket
	Data          string               // folder of all state
	Token         *template.SecretText // nil means that serve generates one in Data
	TLS           ServerTLS            // of Listen, and of the gateway's if that runs alone
	Retention     time.Duration        // how long ended runs are kept
	DeadRetention time.Duration        // how long runs that gave up are kept
	Concurrency   int                  // handlers at once
	Durability    string               // "full" or "os"
	MaxBody       int64                // bytes of a request's body
	Inherit       guard.Inherit        // variables that all commands of steps, jobs and notifiers get

	MaxConnections           int // of the TCP listener; 0 means as many as the descriptors of the process allow
	MaxConnectionsPerAddress int // the same from one address; 0 means half of MaxConnections
}

// Values returns every setting in effect with its origin, section by section:
// policies, notifiers, providers, the gateway, workflows, then the engine, the
// server, the audit trail, the alarm, tracing, the sessions and the jobs of NIP-90.
func (c *Config) Values() []strictyaml.Value { return c.values }
