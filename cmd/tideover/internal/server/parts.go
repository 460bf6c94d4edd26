package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/demo"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
)

// parts has the components of a server: the gateway, the engine, and the components that they
// need or that need them.
type parts struct {
	options   Options
	cfg       *config.Config        // the configuration at the start
	current   func() *config.Config // returns the configuration in effect
	log       *slog.Logger
	redactor  *secret.Redactor
	addresses *addresses
	observer  *observer

	gateway     *gateway.Gateway
	accounts    *account.Store // limits of accounts
	keyAccounts *keyAccounts   // accounts of the gateway's keys
	demo        *demo.Demo     // nil without the demo

	// All of these are nil for a gateway alone.
	engine    *engine.Engine
	outbox    *outbox.Outbox
	runSteps  *steps.Runner
	nip90     *nip90.Service
	outputs   *output.Store
	cluster   *jetstream.Log    // nil without a cluster
	watcher   *cluster.Watcher  // nil without a cluster
	schedules *clusterSchedules // nil without a cluster
	sessions  *session.Manager  // nil in a cluster
	runner    *session.Runner   // nil in a cluster

	sessionsReady chan struct{} // closed when sessions may start
}

// newParts returns the parts of a server without the gateway and the engine, which openGateway and
// openEngine create.
func newParts(ctx context.Context, o Options, cfg *config.Config, current func() *config.Config, a *addresses, b *observer) (*parts, error) {
	p := &parts{options: o, cfg: cfg, current: current, log: o.Log, redactor: o.Source.Redactor, addresses: a, observer: b, sessionsReady: make(chan struct{})}
	if !o.Demo {
		return p, nil
	}
	var err error
	p.demo, err = demo.New(ctx)
	return p, err
}

// startSessions sets the schedules and starts the sessions of a server without a cluster.
func (p *parts) startSessions(ctx context.Context, n plan) error {
	p.sessions.Engine = p.engine
	if err := p.engine.SetSchedules(ctx, n.schedules); err != nil {
		return err
	}
	if _, err := p.sessions.Set(ctx, n.specs, n.sessions); err != nil {
		return err
	}
	for run := range p.sessions.Runs(ctx) {
		p.outbox.Recover(run)
	}
	close(p.sessionsReady)
	return nil
}

// closeEngine closes the engine, if there is one. It waits for the running attempts, but no longer
// than [Grace] or until the context hurry ends.
func (p *parts) closeEngine(hurry context.Context) error {
	if p.engine == nil {
		return nil
	}
	limit, cancel := context.WithTimeout(hurry, Grace)
	defer cancel()
	return errors.Join(p.engine.Close(limit), p.outputs.Close())
}

// handlers returns the handlers of steps, messages, NIP-90 jobs and, without a cluster, sessions. self
// is the path of this program; locks is the folder with the locks of commands.
func (p *parts) handlers(self, locks string) map[string]engine.Handler {
	p.runSteps = &steps.Runner{
		Self: self, Locks: locks, Secrets: func() secret.Resolver { return p.current().Secrets() }, Hidden: p.hiddenVariables,
		Redactor: p.redactor, Provider: p.gateway.RoundTripper, Inherit: p.cfg.Server.Inherit, Accounts: p.accounts,
		Outputs: p.outputs, AllowHosts: func() hosts.Set { return p.current().Server.AllowHosts },
	}
	runner := p.runSteps
	if p.cfg.Engine.Clustered() {
		runner.Hold = holdMissing
	}
	handlers := runner.Handlers()
	maps.Copy(handlers, p.outbox.Handlers())
	maps.Copy(handlers, p.nip90.Handlers(runner.Handler()))
	if p.cfg.Engine.Clustered() {
		snoozeMissing(handlers)
		return handlers
	}
	p.sessions = p.newSessions(self, locks)
	handlers[session.Handler] = p.runner.Handle
	return handlers
}

// hiddenVariables returns the environment variables that commands do not inherit.
func (p *parts) hiddenVariables() []string { return p.current().HiddenVariables() }

// newSessions returns the manager of the sessions, and sets p.runner. The sessions write their output
// to files in the data folder.
func (p *parts) newSessions(self, locks string) *session.Manager {
	logs := session.Logs{Dir: filepath.Join(p.cfg.Server.Data, "sessions"), Redactor: p.redactor}
	p.runner = &session.Runner{
		Self: self, Locks: locks, Open: logs.Open, Redactor: p.redactor, Ready: p.sessionsReady, Hidden: p.hiddenVariables,
		Quotas: client.UserFolder("quota"), Warn: func(text string) { p.log.Warn(text) },
		Expand:   func(value string) (string, error) { return p.current().Expand(value) },
		Cancel:   func(ctx context.Context, run, by string) error { return p.engine.Cancel(ctx, run, by) },
		Wake:     func(ctx context.Context, run, by string) error { return session.WakeHeld(ctx, p.engine, run, by) },
		Accounts: p.accounts,
		Shared:   func(spec *session.Spec) bool { return spec.SharesFolder(p.otherSessions(spec.Name)) },
	}
	return &session.Manager{Output: logs.Tail, Read: logs.Read, Known: logs.Known, Runner: p.runner}
}

// otherSessions returns the commands of all sessions except the named one: the sessions of the
// configuration, and those of every watch.
func (p *parts) otherSessions(name string) []session.Command {
	cfg := p.current()
	list := session.Watched(filepath.Join(cfg.Server.Data, "watch"), "")
	for other, c := range cfg.Sessions {
		if other != name {
			list = append(list, c.Commands()...)
		}
	}
	return list
}

// run starts all parts. It calls start with the name of each part and a function that runs the part
// until the context ends. page is the URL of the page.
func (p *parts) run(ctx context.Context, page string, start func(name string, f func() error)) {
	if p.engine != nil {
		start("engine", func() error {
			select {
			case <-p.engine.Done():
				return p.engine.Err()
			case <-ctx.Done():
				return nil
			}
		})
		start("nip90", func() error { return p.nip90.Run(ctx) })
		start("outputs", func() error { p.outputs.Run(ctx); return nil })
	}
	if p.cluster != nil {
		start("schedules", func() error { return p.schedules.run(ctx) })
		start("cluster", func() error { p.watcher.Run(ctx); return nil })
	}
	start("charts", func() error { p.observer.charts.Run(ctx); return nil })
	start("alarm", func() error { return p.observer.alarm.Run(ctx) })
	start("gateway", func() error { return p.gateway.Run(ctx) })
	start("accounts", func() error { p.keyAccounts.run(ctx); return nil })
	if p.demo != nil {
		start("demo", func() error {
			return p.demo.Run(ctx, demo.Host{Engine: p.engine, Address: page, Sessions: p.sessions})
		})
	}
}

// markShutdown tells the sessions that the server shuts down: if a signal ends a command from now on,
// the shutdown is the cause, and not the user.
func (p *parts) markShutdown() {
	if p.runner != nil {
		p.runner.End()
	}
}

// collectors returns the metrics of the parts.
func (p *parts) collectors() []prometheus.Collector {
	list := []prometheus.Collector{metrics.Storms(p.observer.alarm), metrics.Gateway(p.gateway)}
	if p.engine != nil {
		source := &metrics.Source{Engine: p.engine, Clustered: p.cluster != nil, Tally: p.observer.tally}
		if p.sessions != nil {
			source.Sessions = p.sessions.List
		}
		list = append(list, p.observer.tally, source)
	}
	if p.nip90 != nil {
		list = append(list, p.nip90.Collector())
	}
	return list
}

// machineFindings returns the findings of the doctor about the machine, the addresses and the cluster.
func (p *parts) machineFindings() []doctor.Finding {
	list := append(p.addresses.findings(), p.observer.auditFindings()...)
	if p.engine == nil {
		return list
	}
	cfg := p.current()
	folder := doctor.Folder{Path: cfg.Server.Data, Keeps: p.cluster == nil, Lazy: cfg.Server.Durability == "os", InUse: true}
	list = append(folder.Check(context.Background()), list...)
	if p.watcher != nil {
		for _, f := range p.watcher.Findings() {
			f.What, f.Why = p.redactor.String(f.What), p.redactor.String(f.Why)
			list = append(list, f)
		}
	}
	return list
}

// diagnose returns all findings of the doctor about this server.
func (p *parts) diagnose() admin.Diagnosis {
	cfg := p.current()
	d := admin.Diagnosis{Engine: "the folder " + cfg.Server.Data}
	d.Findings = p.machineFindings()
	for _, t := range p.engine.Warnings() {
		d.Findings = append(d.Findings, doctor.Finding{
			Severity: journal.Broken, What: t.What, Why: t.Error,
			Do: cmp.Or(t.Do, "repair the workflow, its function or its schedule, and start the run by hand if it must not wait for the next time"),
		})
	}
	if p.cluster != nil {
		d.Engine = "the cluster " + cfg.Engine.Name
	}
	return d
}
