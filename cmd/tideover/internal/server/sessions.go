package server

import (
	"context"
	"path/filepath"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
)

// plan is what a configuration asks of the engine.
type plan struct {
	outbox    *outbox.Outbox
	workflows []*engine.Workflow // all of them
	schedules []engine.Schedule
	specs     []*session.Spec
	sessions  []*engine.Workflow // of the specs
	offer     nip90.Offer
}

// planned makes the workflows of a configuration: its own, those of its sessions, of
// the messages about them, and of the jobs that it offers.
func (s *server) planned(cfg *config.Config) (p plan, err error) {
	if p.outbox, err = outbox.New(outbox.Config{
		Notifiers: cfg.OrderedNotifiers(), Env: cfg.NotifyEnv(), Place: s.addresses.place, Retention: cfg.Server.Retention,
	}); err != nil {
		return p, err
	}
	if p.workflows, p.schedules, err = steps.Workflows(cfg.OrderedWorkflows(), cfg.Secrets(), p.outbox.Alarm); err != nil {
		return p, err
	}
	for _, name := range cfg.SessionNames() {
		c := cfg.Sessions[name]
		alarm, err := p.outbox.Listen(&c.Spec, c.Notify)
		if err != nil {
			return p, err
		}
		flow, err := c.Workflow(alarm)
		if err != nil {
			return p, err
		}
		p.specs, p.sessions = append(p.specs, &c.Spec), append(p.sessions, flow)
	}
	p.workflows = append(append(p.workflows, p.sessions...), p.outbox.Workflows()...)
	if p.offer, err = nip90.Plan(nip90.Config{
		Spec: cfg.NIP90, Workflows: cfg.Workflows, Secrets: cfg.Secrets(), Values: cfg.Values(),
	}, p.outbox.Alarm); err != nil {
		return p, err
	}
	p.workflows = append(p.workflows, p.offer.Workflows()...)
	if s.demo != nil {
		p.workflows = append(p.workflows, s.demo.Workflows...)
	}
	return p, nil
}

// newSessions returns what runs sessions. Their output goes to files.
func (s *server) newSessions(self, locks string) *session.Manager {
	logs := session.Logs{Dir: filepath.Join(s.cfg.Server.Data, "sessions"), Redactor: s.Source.Redactor}
	s.runner = &session.Runner{
		Self: self, Locks: locks, Open: logs.Open, Redactor: s.Source.Redactor, Ready: s.ready, Hidden: s.hidden,
		Quotas: client.UserFolder("quota"), Warn: func(text string) { s.Log.Warn(text) },
		Expand:   func(value string) (string, error) { return s.config().Expand(value) },
		Cancel:   func(ctx context.Context, run, by string) error { return s.engine.Cancel(ctx, run, by) },
		Wake:     func(ctx context.Context, run, by string) error { return session.WakeHeld(ctx, s.engine, run, by) },
		Accounts: s.accounts,
		Shared:   func(spec *session.Spec) bool { return spec.SharesFolder(s.otherSessions(spec.Name)) },
	}
	return &session.Manager{Output: logs.Tail, Read: logs.Read, Known: logs.Known, Runner: s.runner}
}

// otherSessions returns the commands of the other sessions that are known: those of
// the file, and those that are watched.
func (s *server) otherSessions(name string) []session.Command {
	cfg := s.config()
	list := session.Watched(filepath.Join(cfg.Server.Data, "watch"), "")
	for other, c := range cfg.Sessions {
		if other != name {
			list = append(list, c.Commands()...)
		}
	}
	return list
}
