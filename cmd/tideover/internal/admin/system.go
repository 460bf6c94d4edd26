package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/retry"
)

// System has the operations on the server itself. Status, DiskUsage, Cluster and Backup need
// an engine.
type System struct {
	config  Config
	engine  *engine.Engine // nil for a gateway alone
	version string
	started time.Time
}

// Settings are the parts of the configuration in effect that the web pages show.
type Settings struct {
	Policies  map[string]retry.Policy     // by name
	Notifiers map[string]NotifierSettings // by name
	Reload    Reload
}

// NotifierSettings are the settings of a notifier.
type NotifierSettings struct {
	Kind string   // such as ntfy; empty if the configuration is unknown
	On   []string // the events about which it sends messages
}

// Reload is the result of the last reload of the configuration file.
type Reload struct {
	At  time.Time // zero if there was no reload
	Err error     // nil if it succeeded
}

// call calls f and returns its result; if f is nil, the zero value.
func call[T any](f func() T) (v T) {
	if f != nil {
		v = f()
	}
	return v
}

// Settings returns the settings in effect; zero if they are unknown.
func (s *System) Settings() Settings { return call(s.config.Settings) }

// ConfigFile returns the result of the last reload of the configuration file, for the API.
func (s *System) ConfigFile() ConfigFile { return call(s.config.ConfigFile) }

// Version returns the name and the version of the program, as in [Config].
func (s *System) Version() string { return s.config.Version }

// Clustered reports whether the engine shares its work with other processes.
func (s *System) Clustered() bool { return s.config.Clustered }

// Storms returns the current retry storms.
func (s *System) Storms() []storm.Storm { return control.NotNil(call(s.config.Storms)) }

// Relays returns the state of the Nostr relays that NIP-90 uses.
func (s *System) Relays() []nostr.RelayStatus { return call(s.config.Relays) }

// Health returns whether the server is healthy: its engine runs and has no problems.
func (s *System) Health() Health {
	h := Health{OK: true}
	if s.engine == nil {
		return h // a gateway that answers is healthy
	}
	for _, t := range s.engine.Troubles() {
		if t.Works {
			h.Warnings = append(h.Warnings, t.What)
		} else {
			h.Troubles = append(h.Troubles, t.What)
		}
	}
	for _, t := range s.engine.Warnings() {
		h.Warnings = append(h.Warnings, t.What)
	}
	if text := s.OutputProblem(); text != "" {
		h.Warnings = append(h.Warnings, text)
	}
	if s.engine.Err() != nil {
		h.Troubles = append(h.Troubles, "the engine has stopped")
	}
	h.OK = len(h.Troubles) == 0
	return h
}

// OutputProblem returns a sentence if outputs of attempts can't be stored at the moment; "" otherwise.
func (s *System) OutputProblem() string {
	if s.config.Outputs == nil {
		return ""
	}
	failed, err := s.config.Outputs.Problem()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("outputs of attempts can't be stored, %d are lost: %v", failed, err)
}

// Status returns the state of the server.
func (s *System) Status(ctx context.Context) (Status, error) {
	stats, err := s.engine.Stats(ctx)
	if err != nil {
		return Status{}, err
	}
	out := Status{
		Version: s.version, Started: s.started, Uptime: time.Since(s.started).Seconds(), Workflows: []WorkflowCounts{},
		Timers: stats.Waiting, Running: stats.Running, Stuck: stats.Stuck, NeedsHandler: stats.Missing,
		ViewBehind: stats.Behind, Next: stats.Next, Troubles: control.NotNil(stats.Troubles), Warnings: stats.Warnings, Storms: s.Storms(), Config: s.ConfigFile(), Silent: stats.Silent,
	}
	for _, c := range stats.Workflows {
		out.Workflows = append(out.Workflows, WorkflowCounts{c.Name, c.States, Totals(c.Totals), c.Paused})
	}
	return out, nil
}

// DiskUsage has the sizes of the engine's files, and the free space on their file system.
type DiskUsage struct {
	Files map[string]int64 // bytes by path in the data folder
	Free  uint64           // bytes; 0 if unknown
}

// DiskUsage returns the sizes of the engine's files, and the free space.
func (s *System) DiskUsage() (DiskUsage, error) {
	files, err := s.engine.Operator().DiskUsage()
	u := DiskUsage{Files: files}
	if err == nil && s.config.Data != "" {
		u.Free, _ = doctor.Free(s.config.Data) // 0 after an error
	}
	return u, err
}

// Doctor checks the machine and the configuration of the server. If the server has no such checks,
// the error has the code [control.CodeNotFound].
func (s *System) Doctor() (Diagnosis, error) {
	if s.config.Doctor == nil {
		return Diagnosis{}, control.NewError(control.CodeNotFound, "this server has no doctor checks", "")
	}
	d := s.config.Doctor()
	d.Findings = control.NotNil(d.Findings)
	return d, nil
}

// Findings returns the findings about the machine, the addresses and the cluster. It returns false if
// the server has no such checks.
func (s *System) Findings() ([]doctor.Finding, bool) {
	return call(s.config.Findings), s.config.Findings != nil
}
