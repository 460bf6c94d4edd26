package admin

import (
	"cmp"
	"log/slog"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/nostr"
)

// Service has all operations on a server, grouped by what they operate on.
type Service struct {
	*control.Engine // Runs, Workflows and Schedules, which are nil without an engine

	Outputs   *Outputs   // of attempts; nil without an engine
	Callbacks *Callbacks // nil without an engine
	Sessions  *Sessions  // nil if the server can't run sessions
	Providers *Providers
	Requests  *Requests
	Messages  *Messages // nil without an engine
	Charts    *Charts   // nil if the server does not count runs over time
	System    *System
}

// Config has the components of a server that a [Service] operates on. Every field may be zero.
type Config struct {
	Engine    *engine.Engine // nil means a gateway alone
	Clustered bool           // the engine shares its work with other processes
	Sessions  SessionManager // nil means no sessions
	Providers Gateway        // nil means no providers
	Requests  RequestRecord  // nil means that no requests are recorded

	Charts   *timeseries.Store // numbers of runs over time; nil means none
	Outputs  *output.Store     // outputs of attempts; nil means that none are stored
	Redactor *secret.Redactor  // masks secrets in outputs; nil means none

	CallbackKey secret.String // signs callback URLs; zero means that there are none

	Data    string // data folder of the server; no backup may be stored in it; empty means unknown
	Version string // such as "tideover v1.2.3 0123abcd, go1.26"
	Logger  *slog.Logger

	Settings   func() Settings
	ConfigFile func() ConfigFile
	Storms     func() []storm.Storm
	Doctor     func() Diagnosis           // checks the machine and the configuration
	Findings   func() []doctor.Finding    // about the machine, the addresses and the cluster, without the engine's warnings
	Place      func() notify.Place        // the origin that messages name
	Relays     func() []nostr.RelayStatus // state of the relays for NIP-90

	ProviderChanged func(name, action, by string) // records that a user changed the state of a provider
}

// New returns a service for the components in c.
func New(c Config) *Service {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	version, _, _ := strings.Cut(strings.TrimPrefix(c.Version, "tideover "), " ")
	s := &Service{
		Engine: new(control.Engine), Providers: NewProviders(c.Providers, c.Logger), Requests: &Requests{c.Requests, time.Now()},
		System: &System{config: c, engine: c.Engine, version: strings.TrimSuffix(version, ","), started: time.Now()},
	}
	s.Providers.changed = c.ProviderChanged
	if c.Engine != nil {
		s.Engine = control.New(c.Engine)
		s.Outputs = &Outputs{s.Runs, c.Outputs, c.Engine, cmp.Or(c.Redactor, new(secret.Redactor))}
		s.Callbacks = &Callbacks{engine: c.Engine, key: c.CallbackKey, place: c.Place}
		s.Messages = &Messages{engine: c.Engine, settings: s.System.Settings, place: c.Place}
	}
	if c.Charts != nil {
		s.Charts = &Charts{c.Charts, c.Clustered}
	}
	if c.Sessions != nil {
		s.Sessions = &Sessions{c.Sessions}
	}
	return s
}
