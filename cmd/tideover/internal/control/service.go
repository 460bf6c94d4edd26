package control

import (
	"cmp"
	"log/slog"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
)

// Service has all operations on a server, by their subject.
type Service struct {
	Runs      *Runs     // nil without an engine
	Sessions  *Sessions // nil if the server has none
	Providers *Providers
	Messages  *Messages // nil without an engine
	System    *System
}

// Config says what a [Service] operates on. Every field may be zero.
type Config struct {
	Engine    *engine.Engine // nil means a gateway alone
	Clustered bool           // the engine shares its work with other processes
	Sessions  SessionManager // nil means none
	Providers Gateway        // nil means none

	Data    string // data folder of the server, in which no backup may be made; empty means unknown
	Version string // such as "tideover v1.2.3 0123abcd, go1.26"
	Logger  *slog.Logger

	Settings   func() Settings
	ConfigFile func() ConfigFile
	Storms     func() []storm.Storm
	Doctor     func() Diagnosis           // checks the machine and the configuration
	Findings   func() []doctor.Finding    // of the machine and the addresses, without the engine's warnings
	Place      func() notify.Place        // where messages come from
	Relays     func() []nostr.RelayStatus // of NIP-90
}

// New returns the service.
func New(c Config) *Service {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	version, _, _ := strings.Cut(strings.TrimPrefix(c.Version, "tideover "), " ")
	s := &Service{
		Providers: NewProviders(c.Providers, c.Logger),
		System:    &System{config: c, engine: c.Engine, version: strings.TrimSuffix(version, ","), started: time.Now()},
	}
	if c.Engine != nil {
		s.Runs = &Runs{engine: c.Engine}
		s.Messages = &Messages{runs: s.Runs, settings: s.System.Settings, place: c.Place}
	}
	if c.Sessions != nil {
		s.Sessions = &Sessions{c.Sessions}
	}
	return s
}
