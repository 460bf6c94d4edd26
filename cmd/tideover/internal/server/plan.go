package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

// plan has the workflows, schedules, sessions and jobs that the engine runs, built from a
// configuration.
type plan struct {
	outbox    *outbox.Outbox
	workflows []*engine.Workflow // including those of sessions, messages, jobs and the demo
	schedules []engine.Schedule
	specs     []*session.Spec
	sessions  []*engine.Workflow // the workflows of specs
	offer     nip90.Offer
}

// newPlan builds the plan of a configuration. Besides the configured workflows it contains those of
// the sessions, of the messages, of the NIP-90 jobs and of the demo.
func (p *parts) newPlan(cfg *config.Config) (n plan, err error) {
	if n.outbox, err = outbox.New(outbox.Config{
		Notifiers: cfg.OrderedNotifiers(), Env: cfg.NotifyEnv(), Place: p.addresses.place, Retention: cfg.Server.Retention,
	}); err != nil {
		return n, err
	}
	if n.workflows, n.schedules, err = steps.Workflows(cfg.OrderedWorkflows(), cfg.Secrets(), n.outbox.Alarm); err != nil {
		return n, err
	}
	for _, name := range cfg.SessionNames() {
		c := cfg.Sessions[name]
		alarm, err := n.outbox.Listen(&c.Spec, c.Notify)
		if err != nil {
			return n, err
		}
		flow, err := c.Workflow(alarm)
		if err != nil {
			return n, err
		}
		n.specs, n.sessions = append(n.specs, &c.Spec), append(n.sessions, flow)
	}
	n.workflows = append(append(n.workflows, n.sessions...), n.outbox.Workflows()...)
	if n.offer, err = nip90.Plan(nip90.Config{
		Spec: cfg.NIP90, Workflows: cfg.Workflows, Secrets: cfg.Secrets(), Values: cfg.Values(),
	}, n.outbox.Alarm); err != nil {
		return n, err
	}
	n.workflows = append(n.workflows, n.offer.Workflows()...)
	if p.demo != nil {
		n.workflows = append(n.workflows, p.demo.Workflows...)
	}
	return n, nil
}

// change is a validated configuration that is not in effect yet.
type change struct {
	providers        []gateway.Spec
	replaceProviders func() error
	plan             plan // zero without an engine
}

// prepare validates a new configuration and builds everything that it needs, so that an error in the
// file can't stop the change halfway.
func (p *parts) prepare(cfg *config.Config) (c change, err error) {
	if c.providers, err = p.providers(cfg); err != nil {
		return c, err
	}
	if c.replaceProviders, err = p.gateway.PrepareReload(c.providers); err != nil {
		return c, err
	}
	if p.engine == nil {
		return c, nil
	}
	if c.plan, err = p.newPlan(cfg); err != nil {
		return c, err
	}
	if p.cluster != nil && len(c.plan.specs) > 0 {
		return c, errors.New("sessions: a cluster can't run sessions, and this server is in a cluster until it is restarted")
	}
	return c, nil
}

// applyToGateway makes the gateway use the providers of the change.
func (p *parts) applyToGateway(c change) error {
	p.keyAccounts.setProviders(c.providers)
	return c.replaceProviders()
}

// applyToEngine makes the engine use the plan of the change, if there is an engine. The order
// makes sure that runs find the names they use: notifiers come before the workflows that notify
// them, and workflows before the schedules and sessions that start them.
func (p *parts) applyToEngine(ctx context.Context, n plan) error {
	if p.engine == nil {
		return nil
	}
	p.observer.addWorkflows(n.workflows)
	p.outbox.Become(n.outbox)
	if p.cluster != nil {
		return p.applyToCluster(n)
	}
	if err := p.engine.Replace(append(n.workflows, p.sessions.Kept(n.specs)...)); err != nil {
		return err
	}
	if err := p.engine.SetSchedules(ctx, n.schedules); err != nil {
		return fmt.Errorf("schedules: %w", err)
	}
	p.nip90.Offer(n.offer, p.engine)
	if _, err := p.sessions.Set(ctx, n.specs, n.sessions); err != nil {
		p.log.Error("some sessions of the configuration did not start", "error", err)
	}
	return nil
}

// openEngine opens the engine with the workflows of the configuration.
func (p *parts) openEngine(ctx context.Context) error {
	n, err := p.newPlan(p.cfg)
	if err != nil {
		return err
	}
	p.outbox, p.nip90 = n.outbox, nip90.New(p.log, p.cfg.Engine.Clustered())
	p.observer.outbox = p.outbox
	p.observer.addWorkflows(n.workflows)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	locks := filepath.Join(p.cfg.Server.Data, "locks")
	if err := guard.Sweep(ctx, locks, steps.Grace, p.log); err != nil {
		return err
	}
	p.outputs = output.New(output.Config{
		Dir: filepath.Join(p.cfg.Server.Data, "outputs"), Limit: p.cfg.Server.OutputStorage, Retention: p.cfg.Server.OutputRetention, Logger: p.log,
	})
	handlers := p.handlers(self, locks)
	ec := engine.Config{
		Dir: p.cfg.Server.Data, Workflows: n.workflows, Handlers: handlers, Functions: p.runSteps.Functions(),
		Concurrency: p.cfg.Server.Concurrency, Retention: p.cfg.Server.Retention, DeadRetention: p.cfg.Server.DeadRetention,
		MaxPayload: steps.MaxPayload, Logger: p.log, Redact: p.redactor.String, Observer: p.observer.observe,
		AnswerMember: admin.AnswerMember(p.outputs), AcceptLoss: p.options.AcceptLoss,
	}
	if p.cfg.Server.Durability == "os" {
		ec.Durability = engine.OS
	}
	if p.cfg.Engine.Clustered() {
		if err := p.joinCluster(ctx, &ec); err != nil {
			return err
		}
	}
	if p.engine, err = engine.Open(ctx, ec); err != nil {
		if ec.Log != nil {
			err = errors.Join(err, ec.Log.Close())
		}
		return err
	}
	p.observer.engine.Store(p.engine)
	p.outbox.Attach(p.engine)
	p.nip90.Offer(n.offer, p.engine)
	if p.cluster != nil {
		p.schedules = newClusterSchedules(p.engine, p.log)
		p.schedules.replace(n.schedules)
		return nil
	}
	if err := p.startSessions(ctx, n); err != nil {
		return errors.Join(err, p.engine.Close(ctx))
	}
	return nil
}
