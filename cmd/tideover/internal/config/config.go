package config

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"
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
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// Config is the whole configuration. It does not change after [Load], so goroutines
// can share it; a reload returns a new Config.
type Config struct {
	Policies  map[string]retry.Policy
	Workflows map[string]*steps.Workflow
	Notifiers map[string]*notify.Spec
	Packs     map[string]*detect.Pack // only those of the file, not the built-in packs
	Sessions  map[string]*Session
	Watch     WatchDefaults
	Providers map[string]*Provider
	Gateway   Gateway
	NIP90     *nip90.Spec // nil means that no jobs are accepted from relays
	Server    Server
	Engine    cluster.Config
	Audit     Audit
	Alarm     storm.Rule      // when to raise an alarm because retries multiply the load
	Tracing   *tracing.Config // nil means that tracing is off

	names     []string // names of the workflows, in the order of the file
	sessions  []string // names of the sessions, in the order of the file
	providers []string // names of the providers, in the order of the file
	dir       string   // folder that paths in references are relative to
	values    []strictyaml.Value
	secrets   secret.Resolver
	digest    digest
	warnings  []*strictyaml.FieldError
}

// Digest returns the SHA-256 of the content of the file, in hexadecimal.
func (c *Config) Digest() string { return hex.EncodeToString(c.digest[:]) }

// ChangedSince returns the settings whose values differ from those of before, sorted: section and key,
// such as server.listen, or section and name, such as workflows.report. It does not return values.
func (c *Config) ChangedSince(before *Config) (list []string) {
	values := map[string]string{}
	for _, v := range before.values {
		values[v.Path] = v.Text
	}
	add := func(path string) {
		section, rest, _ := strings.Cut(path, ".")
		name, _, _ := strings.Cut(rest, ".")
		list = append(list, strings.TrimSuffix(section+"."+name, "."))
	}
	for _, v := range c.values {
		if text, ok := values[v.Path]; !ok || text != v.Text {
			add(v.Path)
		}
		delete(values, v.Path)
	}
	for path := range values {
		add(path)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Warnings returns warnings about settings that are valid but probably a mistake.
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

// NotifyEnv returns the settings outside of the section notify that notifiers need to send.
func (c *Config) NotifyEnv() notify.Env {
	return notify.Env{Secrets: c.secrets, Hidden: c.HiddenVariables(), Inherit: c.Server.Inherit}
}

// Secrets returns the resolver of references. It reads variables from Source.Environ and
// adds every value to Source.Redactor.
func (c *Config) Secrets() secret.Resolver { return c.secrets }

// Server has the settings of `tideover serve`.
type Server struct {
	Listen          string               // host:port
	Hosts           []string             // further host names and IP addresses that requests may name, without port
	AllowHosts      hosts.Set            // hosts to which templates in URLs may send requests
	Socket          string               // path of the unix socket
	Data            string               // folder of all state
	Token           *template.SecretText // nil means that serve generates one in Data
	Users           []User               // further users, sorted by name
	CallbackKey     *template.SecretText // signs callback URLs; nil means that serve generates one in Data
	TLS             ServerTLS            // for Listen, and for Gateway.Listen if the gateway runs alone
	Retention       time.Duration        // how long ended runs are kept
	DeadRetention   time.Duration        // how long runs that gave up are kept
	OutputStorage   int64                // most bytes of the outputs of attempts
	OutputRetention time.Duration        // how long the outputs of attempts are kept
	Concurrency     int                  // most handlers at the same time
	Durability      string               // "full" syncs a start to disk before it is acknowledged, "os" only writes it
	MaxBody         int64                // most bytes in the body of an API request
	Inherit         guard.Inherit        // variables that all commands of steps, jobs and notifiers get

	MaxConnections           int // most open TCP connections; 0 means as many as the file descriptors of the process allow
	MaxConnectionsPerAddress int // most open TCP connections from one address; 0 means half of MaxConnections
}

// Values returns every setting in effect with its origin, section by section:
// policies, notifiers, providers, the gateway, workflows, then the engine, the
// server, the audit log, the alarm, tracing, the sessions and the jobs of NIP-90.
func (c *Config) Values() []strictyaml.Value { return c.values }
