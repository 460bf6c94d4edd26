package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine"
)

// watch follows changes of the configuration until the context ends.
func (s *server) watch(ctx context.Context) error {
	if s.Source.Path == "" {
		for {
			select {
			case <-s.Reload:
				s.addresses.reloadCertificate()
			case <-ctx.Done():
				return nil
			}
		}
	}
	w := config.NewWatcher(s.Source, s.cfg)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-s.Reload:
				s.addresses.reloadCertificate()
				w.Reload()
			case <-stop:
				return
			}
		}
	}()
	err := w.Run(ctx, func(cfg *config.Config, err error) {
		if err == nil {
			err = s.reload(ctx, cfg)
		}
		s.note(err)
		if err != nil {
			s.keep(err)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// note remembers what became of the file.
func (s *server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.refused = time.Now(), err
}

// reloaded returns when the file was last read again, and why it was not taken over.
func (s *server) reloaded() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read, s.refused
}

// settings returns the parts of the configuration in effect that the pages show.
func (s *server) settings() control.Settings {
	cfg := s.config()
	out := control.Settings{Policies: cfg.Policies, Notifiers: map[string]control.NotifierSettings{}}
	for name, n := range cfg.Notifiers {
		on := make([]string, len(n.On))
		for i, t := range n.On {
			on[i] = t.String()
		}
		out.Notifiers[name] = control.NotifierSettings{Kind: n.Kind, On: on}
	}
	out.Reload.At, out.Reload.Err = s.reloaded()
	return out
}

// file returns the result of the last reload, for the API.
func (s *server) file() control.ConfigFile {
	at, err := s.reloaded()
	f := control.ConfigFile{Read: at}
	if err != nil {
		first, more := strictyaml.Brief(err)
		f.Problem, f.More = s.Source.Redactor.String(first), more
	}
	return f
}

// partlyError says that the engine could not do all that the configuration asks of
// it, which is no fault of the file.
type partlyError struct{ err error }

// Error implements [error].
func (e *partlyError) Error() string {
	return "taken over in part, until it is loaded again: " + e.err.Error()
}

// Unwrap returns what the engine says.
func (e *partlyError) Unwrap() error { return e.err }

// keep says in one line why the configuration stays as it was, if it does.
func (s *server) keep(err error) {
	first, more := strictyaml.Brief(err)
	if _, ok := errors.AsType[*partlyError](err); ok {
		s.Log.Error("the configuration is not in effect as a whole", "error", first)
		return
	}
	attrs := []any{"error", first}
	if more > 0 {
		attrs = append(attrs, "more", more)
	}
	if _, scant := errors.AsType[*scantError](err); !scant { // of which the check knows nothing
		attrs = append(attrs, "hint", "tideover config check "+s.Source.Path)
	}
	s.Log.Error("the configuration stays as it was", attrs...)
}

// reload takes over the new configuration, whole or not at all. Runs in progress
// go on as they began.
func (s *server) reload(ctx context.Context, cfg *config.Config) error {
	if err := s.enough(cfg); err != nil {
		return err
	}
	providers, err := s.providers(cfg)
	if err != nil {
		return err
	}
	take, err := s.gateway.PrepareReload(providers)
	if err != nil {
		return err
	}
	p, err := s.prepare(cfg)
	if err != nil {
		return err
	}
	// Nothing can be wrong with the file from here on. What steps name comes before
	// them: a run of a new workflow may begin at once.
	s.keyAccounts.follow(providers)
	if err := take(); err != nil {
		return err
	}
	s.use(cfg)
	if s.engine != nil {
		if err := s.takeOver(ctx, p); err != nil {
			return &partlyError{err}
		}
	}
	attrs := []any{"workflows", len(cfg.Workflows), "sessions", len(cfg.Sessions), "providers", len(providers)}
	if later := s.restartOnly(cfg); len(later) > 0 {
		attrs = append(attrs, "except", strings.Join(later, ", "))
	}
	s.Log.Info("configuration loaded", attrs...)
	warn(s.Log, cfg)
	return nil
}

// use makes the configuration the one that is in effect.
func (s *server) use(cfg *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = cfg
	s.alarm.Become(cfg.Alarm)
}

// prepare returns what the configuration asks of the engine, if there is one. All
// that may be wrong with that is found here.
func (s *server) prepare(cfg *config.Config) (p plan, err error) {
	if s.engine == nil {
		return p, nil
	}
	if p, err = s.planned(cfg); err != nil {
		return p, err
	}
	for _, sch := range p.schedules {
		if _, err := engine.ParseCron(sch.Cron, time.Now()); err != nil {
			return p, fmt.Errorf("schedule of %s: %w", sch.Name, err)
		}
	}
	if s.cluster != nil && len(p.specs) > 0 {
		return p, errors.New("sessions: there are none in a cluster, which this server is in until it is started again")
	}
	return p, nil
}

// takeOver has the engine do what was prepared. Runs must find what they name:
// notifiers come before the workflows that tell them, and those before the schedules
// and sessions that start them.
func (s *server) takeOver(ctx context.Context, p plan) error {
	s.know(p.workflows)
	s.outbox.Become(p.outbox)
	if s.cluster != nil {
		return s.takeOverCluster(p)
	}
	if err := s.engine.Replace(append(p.workflows, s.sessions.Kept(p.specs)...)); err != nil {
		return err
	}
	if err := s.engine.SetSchedules(ctx, p.schedules); err != nil {
		return fmt.Errorf("schedules: %w", err)
	}
	s.nip90.Offer(p.offer, s.engine)
	if _, err := s.sessions.Set(ctx, p.specs, p.sessions); err != nil {
		s.Log.Error("not all sessions of the configuration have begun", "error", err)
	}
	return nil
}

// lasting are the sections whose values hold until the end.
var lasting = []string{"engine", "server", "audit", "gateway", "tracing"}

// restartOnly says which changes have no effect yet, and returns their keys.
func (s *server) restartOnly(cfg *config.Config) (later []string) {
	now := map[string]string{}
	for _, v := range cfg.Values() {
		now[v.Path] = v.Text
	}
	all := maps.Clone(s.inEffect)
	maps.Copy(all, now)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		section, _, _ := strings.Cut(path, ".")
		if slices.Contains(lasting, section) && s.inEffect[path] != now[path] {
			s.Log.Warn("this takes effect when the server is started again", "key", path, "value", cmp.Or(now[path], "none"))
			later = append(later, path)
		}
	}
	return later
}
