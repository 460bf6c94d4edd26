// Package demo is what `tideover serve --demo` shows: an unreliable service in
// this process, and workflows that get through it, or have reason not to; and
// unreliable providers behind the gateway, with clients that ask them.
package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/chaos"
	"github.com/tideover/tideover/cmd/tideover/internal/gateway"
	"github.com/tideover/tideover/engine"
)

// every is the pause between two new runs, at most.
const every = 4 * time.Second

// Demo is the service and its workflows.
type Demo struct {
	Workflows []*engine.Workflow
	Providers []gateway.Spec

	listener  net.Listener
	client    *http.Client
	upstreams []*chaos.Server
}

// New returns a demo. Its service listens on loopback until Run ends.
func New(ctx context.Context) (*Demo, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Demo{listener: l, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	if d.Workflows, err = d.workflows(); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if err := d.models(); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return d, nil
}

// Run serves, starts runs and asks the gateway at the address, until the context
// ends.
func (d *Demo) Run(ctx context.Context, e *engine.Engine, address string) error {
	srv := &http.Server{Handler: service(), ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(d.listener) }()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		d.ask(ctx, address)
	}()
	defer func() {
		<-asked
		for _, up := range d.upstreams {
			_ = up.Close()
		}
		_ = srv.Close()
		<-served
		d.client.CloseIdleConnections()
	}()
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
