// Package server runs `tideover serve` and `tideover gateway`: it creates the gateway, the engine,
// the API and the page, and connects them.
package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/tidy"
)

// Grace is how long attempts may take to end when the server shuts down.
const Grace = 15 * time.Second

// Options configures [Run].
type Options struct {
	Source  config.Source // its Redactor must be set
	Gateway bool          // run only the gateway
	Demo    bool          // run the demo in addition to the configuration
	AnyPort bool          // use any free port if the configured one is in use
	Version string
	Log     *slog.Logger

	// AcceptLoss opens a log that ends before what was acknowledged: see [engine.Config].
	AcceptLoss bool

	// Ready is called when the server accepts connections.
	Ready func(Page)

	// A value from Reload makes the server read its configuration and certificate again. The server
	// also reads them when a file changes. Reload may be nil.
	Reload <-chan struct{}
}

// Page describes a server that is ready: the address of its page, the token, and the providers.
type Page struct {
	Address   string
	Token     secret.String
	TokenAt   string     // the file with the token, or the configured reference to it
	Providers []Provider // of the configuration, in its order
}

// server is a running server.
type server struct {
	options     Options
	cfg         *config.Config // the configuration at the start
	token       secret.String
	users       []httpserver.User
	callbackKey secret.String // zero for a gateway alone, and in a cluster without server.callback-key
	addresses   *addresses
	observer    *observer
	parts       *parts
	reloader    *reloader
	connections *connections
}

// Run runs a server until ctx ends, and then shuts it down. The shutdown waits for running requests
// and attempts, but no longer than until the context hurry ends.
func Run(ctx, hurry context.Context, o Options) (err error) {
	cfg, err := config.Load(o.Source)
	if err != nil {
		return err
	}
	logWarnings(o.Log, cfg, o.Gateway)
	if err := requireProviders(o, cfg); err != nil {
		return err
	}
	if err := checkStorage(o, cfg); err != nil {
		return err
	}
	unlock, err := openFolder(cfg.Server.Data)
	if err != nil {
		return err
	}
	defer unlock()
	s := &server{options: o, cfg: cfg}
	if s.token, err = loadToken(cfg); err != nil {
		return err
	}
	o.Source.Redactor.Add(s.token.Reveal())
	if s.users, err = users(cfg); err != nil {
		return err
	}
	if !o.Gateway {
		if s.callbackKey, err = loadCallbackKey(cfg); err != nil {
			return err
		}
		o.Source.Redactor.Add(s.callbackKey.Reveal())
	}
	if s.addresses, err = newAddresses(cfg, o.Gateway, o.Log); err != nil {
		return err
	}
	if s.observer, err = newObserver(ctx, o, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.observer.close()) }()
	s.reloader = newReloader(o, cfg, s.addresses, s.observer)
	if s.parts, err = newParts(ctx, o, cfg, s.reloader.current.Load, s.addresses, s.observer); err != nil {
		return err
	}
	s.reloader.parts = s.parts
	if err := s.parts.openGateway(); err != nil {
		return err
	}
	if o.Gateway {
		return s.serve(ctx, hurry)
	}
	if err := s.parts.openEngine(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // shut down while it waited for the engine
		}
		return err
	}
	defer func() { err = errors.Join(err, s.parts.closeEngine(hurry)) }()
	return s.serve(ctx, hurry)
}

// logWarnings logs the warnings about the configuration, and about settings that are ignored.
func logWarnings(log *slog.Logger, cfg *config.Config, gateway bool) {
	for _, text := range ignoredSettings(cfg, gateway) {
		log.Warn("configuration warning", "warning", text)
	}
	for _, w := range cfg.Warnings() {
		first, _ := strictyaml.Brief(strictyaml.FieldErrors{w})
		log.Warn("configuration warning", "warning", first)
	}
}

// serve runs all parts until the context ends or one of them fails.
func (s *server) serve(ctx, hurry context.Context) error {
	tcp, unix, err := s.listen(ctx)
	if err != nil {
		return err
	}
	page := s.addresses.publicURL(tcp.Addr())
	s.addresses.page.Store(&page)
	httpServer := httpserver.NewServer(s.handler(tcp.Addr()))
	httpServer.ErrorLog = newErrorLog(s.options.Log, log.Default())
	serveTCP := s.addresses.serveTCP(httpServer)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	start := func(name string, f func() error) {
		running.Go(func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	start("socket", func() error { return httpServer.Serve(unix) })
	start("listen", func() error { return serveTCP(tcp) })
	if s.addresses.certificate != nil {
		start("certificate", func() error { return s.addresses.certificate.Run(ctx, s.addresses.certificateWarnings) })
	}
	s.parts.run(ctx, page, start)
	start("config", func() error { return s.reloader.watch(ctx) })
	start("memory", func() error { tidy.Run(ctx); return nil })
	if s.options.Ready != nil {
		s.options.Ready(s.page(page))
	}
	<-ctx.Done()
	s.parts.markShutdown()
	s.options.Log.Info("stopping")
	s.parts.drain(hurry)
	limit, done := context.WithTimeout(hurry, time.Second)
	defer done()
	if httpServer.Shutdown(limit) != nil {
		_ = httpServer.Close()
	}
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// listen opens both listeners, which limit their connections.
func (s *server) listen(ctx context.Context) (tcp, unix net.Listener, err error) {
	if unix, err = httpserver.ListenUnix(s.cfg.Server.Socket); err != nil {
		return nil, nil, err
	}
	var lc net.ListenConfig
	tcp, err = lc.Listen(ctx, "tcp", s.addresses.listen())
	if err != nil && s.options.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		tcp, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: name another address with --listen or %[1]s", ListenAddress(s.cfg, s.options.Gateway).Key, err)
		return nil, nil, errors.Join(err, unix.Close())
	}
	s.connections = newConnections(s.cfg, s.options.Gateway, s.options.Log)
	return s.connections.tcp.Listen(tcp, s.addresses.certificate != nil), s.connections.socket.Listen(unix, false), nil
}

// page returns the argument for Options.Ready.
func (s *server) page(address string) Page {
	p := Page{address, s.token, filepath.Join(s.cfg.Server.Data, "token"), providersOf(s.cfg)}
	if t := s.cfg.Server.Token; t != nil {
		p.TokenAt = t.String()
	}
	return p
}
