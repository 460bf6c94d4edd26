// Package demo is what `tideover serve --demo` shows: an unreliable service in this
// process, and workflows that get through it, or have reason not to; writers that
// collide; unreliable providers behind the gateway, with clients that ask them; and,
// by a configuration of its own, a command on a schedule, an assistant that runs into
// its limit, and somebody who is told.
package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

// every is the pause between two new runs, at most.
const every = 4 * time.Second

// Demo is the service, its workflows and its providers.
type Demo struct {
	Workflows []*engine.Workflow
	Providers []gateway.Spec

	listener  net.Listener
	client    *http.Client
	upstreams []*chaos.Server
	ledger    ledger
	writer    *contend.Writer
}

// Host is the server that shows the demo.
type Host struct {
	Engine   *engine.Engine
	Address  string // of the gateway, with a slash at its end
	Sessions Sessions
}

// New returns a demo. Its service listens on loopback until Run ends.
func New(ctx context.Context) (*Demo, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Demo{listener: l, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	for _, prepare := range []func() error{d.pace, d.plan, d.models} {
		if err := prepare(); err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
	}
	return d, nil
}

// pace says how the writers wait for each other.
func (d *Demo) pace() error {
	p, err := retry.Parse("contention")
	if err != nil {
		return err
	}
	d.writer, err = contend.New(contend.Config{Policy: p, Scale: 1.5})
	return err
}

// plan makes the workflows.
func (d *Demo) plan() (err error) {
	if d.Workflows, err = d.workflows(); err != nil {
		return err
	}
	round, err := d.contention()
	d.Workflows = append(d.Workflows, round)
	return err
}

// Run serves, starts runs, asks the gateway and employs the assistant, until the
// context ends.
func (d *Demo) Run(ctx context.Context, h Host) error {
	ctx, cancel := context.WithCancel(ctx)
	srv := &http.Server{Handler: service(), ReadHeaderTimeout: time.Second}
	var parts sync.WaitGroup
	parts.Go(func() { _ = srv.Serve(d.listener) }) // until it is closed
	var users sync.WaitGroup
	users.Go(func() { d.ask(ctx, h.Address) })
	users.Go(func() { employ(ctx, h.Sessions) })
	defer func() {
		cancel()
		users.Wait()
		for _, up := range d.upstreams {
			_ = up.Close()
		}
		_ = srv.Close()
		parts.Wait()
		d.client.CloseIdleConnections()
	}()
	return d.start(ctx, h.Engine)
}

// start starts runs, of each workflow in turn.
func (d *Demo) start(ctx context.Context, e *engine.Engine) error {
	for n := 1; ; n++ {
		w := d.Workflows[(n-1)%len(d.Workflows)]
		if _, err := e.Start(ctx, w, newOrder(n), engine.Source("demo")); err != nil && ctx.Err() == nil {
			return err
		}
		pause := every/4 + rand.N(3*every/4)
		if n <= 2*len(d.Workflows) {
			pause = 300 * time.Millisecond // something of everything, soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
