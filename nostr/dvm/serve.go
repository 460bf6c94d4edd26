package dvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/nostr"
)

// ServeConfig configures [Serve]. Relays, Key and Handler are required.
type ServeConfig struct {
	Relays  []string
	Key     nostr.SecretKey
	Handler Handler

	// FlushTimeout limits the time to publish the last events; 0 means 10 s.
	FlushTimeout time.Duration

	// Further settings. Serve itself sets the relays, keys, links, jobs and
	// handlers in them, and the functions of the client.
	Client   nostr.ClientConfig
	Provider Config
	Runner   RunnerConfig
}

// Serve runs jobs in this process until the context ends: it connects to
// relays, receives requests and answers them. At the end it cancels unfinished
// jobs and notifies their customers. It returns after everything that it
// started has ended, except handlers that do not stop. The error names those,
// and relays that did not get the last events.
func Serve(ctx context.Context, cfg ServeConfig) error {
	var p *Provider
	cfg.Client.Relays, cfg.Client.Key = cfg.Relays, cfg.Key
	cfg.Client.Handle = func(relay string, e *nostr.Event) error { return p.Handle(relay, e) }
	cfg.Client.Stored = func(relay, sub string) { p.Stored(relay, sub) }
	client, err := nostr.NewClient(cfg.Client)
	if err != nil {
		return fmt.Errorf("dvm.Serve: %w", err)
	}
	cfg.Runner.Link, cfg.Runner.Key, cfg.Runner.Handler = client, cfg.Key, cfg.Handler
	runner, err := NewRunner(cfg.Runner)
	if err != nil {
		return err
	}
	cfg.Provider.Link, cfg.Provider.Key, cfg.Provider.Jobs = client, cfg.Key, runner
	if p, err = NewProvider(cfg.Provider); err != nil {
		return err
	}
	return serve(ctx, client, p, runner, cmp.Or(cfg.FlushTimeout, 10*time.Second))
}

// serve runs all parts, and ends them in the order of their dependencies.
func serve(ctx context.Context, client *nostr.Client, p *Provider, runner *Runner, flush time.Duration) error {
	linked, unlink := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	errs := make([]error, 4)
	group.Go(func() { errs[0] = client.Run(linked) })
	errs[1] = p.Run(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), runner.cfg.Grace+flush)
	defer cancel()
	errs[2] = runner.Close(ending)
	flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flush)
	defer cancel()
	errs[3] = client.Flush(flushing)
	unlink()
	group.Wait()
	return errors.Join(errs...)
}
