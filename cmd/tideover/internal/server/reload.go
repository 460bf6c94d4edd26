package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine"
)

// watch follows changes of the configuration until the context ends.
func (s *server) watch(ctx context.Context) error {
	if s.Source.Path == "" {
		<-ctx.Done()
		return nil
	}
	w := config.NewWatcher(s.Source, s.cfg)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-s.Reload:
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

// keep says in one line why the configuration stays as it was.
func (s *server) keep(err error) {
	first, more := config.Brief(err)
	attrs := []any{"error", first}
	if more > 0 {
		attrs = append(attrs, "more", more)
	}
	s.Log.Error("the configuration stays as it was", append(attrs, "hint", "tideover config check "+s.Source.Path)...)
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
	take, err := s.gateway.Prepare(providers)
	if err != nil {
		return err
	}
	if s.engine != nil {
		if err := s.reloadEngine(ctx, cfg); err != nil {
			return err
		}
	} else {
		s.use(cfg)
	}
	if err := take(); err != nil {
		return err
	}
	s.restartOnly(cfg)
	s.Log.Info("configuration loaded", "workflows", len(cfg.Workflows), "sessions", len(cfg.Sessions), "providers", len(providers))
	return nil
}

// use makes the configuration the one that is in effect.
func (s *server) use(cfg *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = cfg
	s.alarm.Become(cfg.Alarm)
}

// reloadEngine takes over what the engine does.
func (s *server) reloadEngine(ctx context.Context, cfg *config.Config) error {
	p, err := s.planned(cfg)
	if err != nil {
		return err
	}
	for _, sch := range p.schedules {
		if _, err := engine.ParseCron(sch.Cron, time.Now()); err != nil {
			return fmt.Errorf("schedule of %s: %w", sch.Name, err)
		}
	}
	if s.cluster != nil {
		return s.reloadCluster(cfg, p)
	}
	if err := s.engine.Replace(append(p.workflows, s.sessions.Kept(p.specs)...)); err != nil {
		return err
	}
	if err := s.engine.SetSchedules(ctx, p.schedules); err != nil {
		return fmt.Errorf("schedules: %w", err)
	}
	s.know(p.workflows)
	s.outbox.Become(p.outbox)
	s.nip90.Offer(p.offer, s.engine)
	s.use(cfg) // by which sessions begin
	if _, err := s.sessions.Set(ctx, p.specs, p.sessions); err != nil {
		s.Log.Error("not all sessions of the configuration have begun", "error", err)
	}
	return nil
}

// lasting are the sections whose values hold until the end.
var lasting = []string{"engine", "server", "audit", "gateway", "tracing"}

// restartOnly says which changes have no effect yet.
func (s *server) restartOnly(cfg *config.Config) {
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
		}
	}
}
