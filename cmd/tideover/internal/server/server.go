// Package server is `tideover serve`: everything that lives long, wired together.
package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/demo"
	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
	"github.com/tideover/tideover/cmd/tideover/internal/web"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/tidy"
)

// Grace is how long attempts may take to end when the server is told to.
const Grace = 15 * time.Second

// Options says what to serve.
type Options struct {
	Source  config.Source // its Redactor must be set
	Gateway bool          // serve the gateway alone
	Demo    bool          // serve the demo beside what is configured
	AnyPort bool          // take another port if that of the configuration is taken
	Version string
	Log     *slog.Logger

	// Ready is called when everything is served.
	Ready func(Page)

	// Reload makes the server read its file again; nil means that only a change
	// of the file does.
	Reload <-chan struct{}
}

// Page is where the page is, and what it wants.
type Page struct {
	Address   string
	Token     secret.String
	TokenAt   string     // where the token can be read
	Providers []Provider // of the configuration, in its order
}

// server is a server that runs.
type server struct {
	Options
	cfg     *config.Config
	engine  *engine.Engine // nil for a gateway alone
	gateway *gateway.Gateway
	token   secret.String
	demo    *demo.Demo

	outbox    *outbox.Outbox
	cluster   *jetstream.Log    // nil without a cluster
	schedules *clusterSchedules // the same
	sessions  *session.Manager  // nil in a cluster
	runner    *session.Runner   // of the sessions; nil without them
	accounts  *account.Store    // what is known of the limits of accounts
	ready     chan struct{}     // closed when they may begin
	trail     *audit.Sink       // nil if there is none
	nip90     *nip90.Service    // nil for a gateway alone
	tally     *metrics.Tally    // of what happens to runs
	alarm     *storm.Alarm      // of what happens to all
	spans     *tracing.Exporter // nil if nobody wants them

	addresses   *addresses
	connections connections
	keyAccounts *keyAccounts // of the gateway

	inEffect map[string]string // values that hold until the end

	mu      sync.Mutex
	current *config.Config // cfg is the one that was loaded first
	read    time.Time      // when the file was last read again
	refused error          // why it was not taken over then
}

// Run serves until the context ends, and then ends everything in order. hurry is
// for whoever can't wait for that.
func Run(ctx, hurry context.Context, o Options) (err error) {
	cfg, err := config.Load(o.Source)
	if err != nil {
		return err
	}
	warn(o.Log, cfg)
	s := &server{Options: o, cfg: cfg, current: cfg, ready: make(chan struct{}), inEffect: map[string]string{}}
	for _, v := range cfg.Values() {
		s.inEffect[v.Path] = v.Text
	}
	if err := s.enough(cfg); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	if err := fileaccess.CheckFolder(cfg.Server.Data); err != nil {
		return fmt.Errorf("server.data: %w, or name another folder with --data or server.data", err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Server.Data, "locks"), 0o700); err != nil {
		return fmt.Errorf("server.data: %w", err)
	}
	unlock, err := lockData(cfg.Server.Data)
	if err != nil {
		return err
	}
	defer unlock()
	if s.token, err = loadToken(cfg); err != nil {
		return err
	}
	o.Source.Redactor.Add(s.token.Reveal())
	if s.addresses, err = newAddresses(cfg, o.Gateway, o.Log); err != nil {
		return err
	}
	if o.Demo {
		if s.demo, err = demo.New(ctx); err != nil {
			return err
		}
	}
	s.tally = metrics.NewTally()
	s.alarm = storm.New(cfg.Alarm, s.attempts, s.stormy)
	if err := s.openTrail(); err != nil {
		return err
	}
	if s.trail != nil {
		defer func() { err = errors.Join(err, s.trail.Close()) }()
	}
	stop, err := s.openTracing(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := s.openGateway(); err != nil {
		return err
	}
	if o.Gateway {
		return s.serve(ctx, hurry)
	}
	if err := s.openEngine(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to end while it waited
		}
		return err
	}
	defer func() {
		limit, cancel := context.WithTimeout(context.Background(), Grace)
		defer cancel()
		stop := context.AfterFunc(hurry, cancel)
		defer stop()
		if e := s.engine.Close(limit); e != nil {
			err = errors.Join(err, e)
		}
	}()
	return s.serve(ctx, hurry)
}

// warn logs what is probably not meant in the configuration.
func warn(log *slog.Logger, cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		first, _ := strictyaml.Brief(strictyaml.FieldErrors{w})
		log.Warn("configuration: " + first)
	}
}

// openEngine opens the engine with the workflows of the configuration.
func (s *server) openEngine(ctx context.Context) error {
	p, err := s.planned(s.cfg)
	if err != nil {
		return err
	}
	s.outbox, s.nip90 = p.outbox, nip90.New(s.Log, s.cfg.Engine.Clustered())
	s.know(p.workflows)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	locks := filepath.Join(s.cfg.Server.Data, "locks")
	if err := guard.Sweep(ctx, locks, steps.Grace, s.Log); err != nil {
		return err
	}
	ec := engine.Config{
		Dir: s.cfg.Server.Data, Workflows: p.workflows, Handlers: s.handlers(self, locks),
		Concurrency: s.cfg.Server.Concurrency, Retention: s.cfg.Server.Retention, DeadRetention: s.cfg.Server.DeadRetention,
		MaxPayload: steps.MaxPayload, Logger: s.Log, Redact: s.Source.Redactor.String, Observer: s.observe,
	}
	if s.cfg.Server.Durability == "os" {
		ec.Durability = engine.OS
	}
	if s.cfg.Engine.Clustered() {
		if err := s.joinCluster(ctx, &ec); err != nil {
			return err
		}
	}
	if s.engine, err = engine.Open(ctx, ec); err != nil {
		if ec.Log != nil {
			err = errors.Join(err, ec.Log.Close())
		}
		return err
	}
	s.outbox.Attach(s.engine)
	s.nip90.Offer(p.offer, s.engine)
	if s.cluster != nil {
		s.schedules = newClusterSchedules(s.engine, s.Log)
		s.schedules.replace(p.schedules)
		return nil
	}
	s.sessions.Engine = s.engine
	if err := s.engine.SetSchedules(ctx, p.schedules); err != nil {
		return errors.Join(err, s.engine.Close(ctx))
	}
	if _, err := s.sessions.Set(ctx, p.specs, p.sessions); err != nil {
		return errors.Join(err, s.engine.Close(ctx))
	}
	for run := range s.sessions.Runs(ctx) {
		s.outbox.Recover(run)
	}
	close(s.ready)
	return nil
}

// handlers returns what does the work of steps, messages and sessions. In a cluster
// there are no sessions.
func (s *server) handlers(self, locks string) map[string]engine.Handler {
	runner := &steps.Runner{
		Self: self, Locks: locks, Secrets: s.resolver, Hidden: s.hidden, Redactor: s.Source.Redactor, Provider: s.gateway.RoundTripper,
		Inherit: s.cfg.Server.Inherit, Accounts: s.accounts,
	}
	handlers := runner.Handlers()
	maps.Copy(handlers, s.outbox.Handlers())
	maps.Copy(handlers, s.nip90.Handlers(runner.Handler()))
	if s.cfg.Engine.Clustered() {
		snoozeMissing(handlers)
		return handlers
	}
	s.sessions = s.newSessions(self, locks)
	handlers[session.Handler] = s.runner.Handle
	return handlers
}

// openTrail opens the audit trail, unless it is switched off.
func (s *server) openTrail() (err error) {
	a := s.cfg.Audit
	if a.Off {
		return nil
	}
	s.trail, err = audit.Open(audit.Config{Path: a.File, MaxSize: a.MaxSize, Keep: a.Keep, Redactor: s.Source.Redactor, Logger: s.Log})
	return err
}

// config returns the configuration as it is now.
func (s *server) config() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// resolver returns what resolves references now.
func (s *server) resolver() secret.Resolver { return s.config().Secrets() }

// hidden returns which variables commands do not inherit now.
func (s *server) hidden() []string { return s.config().HiddenVariables() }

// serve runs all parts until the context ends or one of them can't go on.
func (s *server) serve(ctx, hurry context.Context) error {
	unix, err := httpserver.ListenUnix(s.cfg.Server.Socket)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", s.addresses.listen())
	if err != nil && s.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		tcp, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: name another address with --listen or %[1]s", s.addresses.listenKey(), err)
		return errors.Join(err, unix.Close())
	}
	s.connections = s.newConnections()
	tcp, unix = s.connections.listen(tcp, unix, s.addresses.encrypted())
	address := s.addresses.publicURL(tcp.Addr())
	s.addresses.setPage(address)
	httpServer := httpserver.NewServer(s.handler(tcp.Addr()))
	httpServer.ErrorLog = newErrorLog(s.Log, log.Default())
	serveTCP := s.addresses.serveTCP(httpServer)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	run := func(name string, part func() error) {
		parts.Go(func() {
			if err := part(); err != nil && !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	run("socket", func() error { return httpServer.Serve(unix) })
	run("listen", func() error { return serveTCP(tcp) })
	if s.addresses.encrypted() {
		run("certificate", func() error { return s.addresses.watchCertificate(ctx) })
	}
	if s.engine != nil {
		run("engine", func() error {
			select {
			case <-s.engine.Done():
				return s.engine.Err()
			case <-ctx.Done():
				return nil
			}
		})
	}
	if s.nip90 != nil {
		run("nip90", func() error { return s.nip90.Run(ctx) })
	}
	if s.cluster != nil {
		run("schedules", func() error { return s.schedules.run(ctx) })
		run("cluster", func() error { cluster.Watch(ctx, s.cluster.Check, s.Log); return nil })
	}
	run("alarm", func() error { return s.alarm.Run(ctx) })
	run("gateway", func() error { return s.gateway.Run(ctx) })
	run("accounts", func() error { s.keyAccounts.run(ctx); return nil })
	run("config", func() error { return s.watch(ctx) })
	run("memory", func() error { tidy.Run(ctx); return nil })
	if s.demo != nil {
		run("demo", func() error {
			return s.demo.Run(ctx, demo.Host{Engine: s.engine, Address: address, Sessions: s.sessions})
		})
	}
	if s.Ready != nil {
		p := Page{address, s.token, filepath.Join(s.cfg.Server.Data, "token"), providersOf(s.cfg)}
		if t := s.cfg.Server.Token; t != nil {
			p.TokenAt = t.String()
		}
		s.Ready(p)
	}
	<-ctx.Done()
	if s.runner != nil {
		s.runner.End()
	}
	s.Log.Info("ending")
	s.drain(hurry)
	s.keyAccounts.turn(true) // what the last requests have learned
	limit, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	stop := context.AfterFunc(hurry, done)
	defer stop()
	if httpServer.Shutdown(limit) != nil {
		_ = httpServer.Close()
	}
	parts.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// newControl returns the operations on this server.
func (s *server) newControl() *control.Service {
	c := control.Config{
		Engine: s.engine, Clustered: s.cluster != nil, Providers: s.gateway, Data: s.cfg.Server.Data, Version: s.Version, Logger: s.Log,
		Settings: s.settings, ConfigFile: s.file, Storms: s.alarm.Storms, Doctor: s.diagnose, Findings: s.machineFindings, Place: s.addresses.place,
	}
	if s.nip90 != nil {
		c.Relays = s.nip90.Relays
	}
	if s.sessions != nil {
		c.Sessions = s.sessions
	}
	return control.New(c)
}

// handler returns the API and the page.
func (s *server) handler(addr net.Addr) http.Handler {
	guard := httpserver.GuardOptions{
		Token: s.token, Hosts: append([]string{addr.String(), s.addresses.listen()}, s.cfg.Server.Hosts...), MaxBody: s.cfg.Server.MaxBody,
	}
	if s.Gateway {
		guard.Command = "tideover gateway"
	}
	service := s.newControl()
	o := api.Options{Control: service, Guard: guard, Logger: s.Log}
	o.Streams, o.LocalStreams = s.connections.streams()
	shown := *service // the pages show the sessions of each watch, too
	if s.sessions != nil {
		shown.Sessions = control.NewSessions(&pageSessions{s.sessions, s.cfg.Server.Data})
	}
	rest := httpserver.Timely(api.New(o))
	site := web.New(web.Options{Control: &shown, Redact: s.Source.Redactor.String})
	page := httpserver.Timely(httpserver.Guard(guard, site))
	metrics := httpserver.Timely(httpserver.Guard(guard, s.metrics()))
	local := httpserver.ProgressTimeout(s.gateway, httpserver.DefaultProgressTimeout)
	providers := s.connections.tcp.LimitRequests(local, tooManyRequests)
	lost := httpserver.Timely(s.gateway) // which says what its paths are
	// Not a ServeMux, which would redirect a key with two slashes in it.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/p/") && httpserver.Local(r.Context()):
			local.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/p/"):
			providers.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/api/") || path == "/healthz":
			rest.ServeHTTP(w, r)
		case path == httpserver.MetricsPath:
			metrics.ServeHTTP(w, r)
		case byBrowser(r) || site.Has(r):
			page.ServeHTTP(w, r)
		default: // a client whose base URL names no provider
			lost.ServeHTTP(w, r)
		}
	})
}

// byBrowser reports whether somebody wants to see a page.
func byBrowser(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}
