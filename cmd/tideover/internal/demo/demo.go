// Package demo implements `tideover serve --demo`:
//
//   - an unreliable service in this process, and workflows that call it
//   - a workflow whose steps compete for the same record
//   - unreliable providers behind the gateway, and clients of the gateway
//   - a configuration with a scheduled command, an assistant with a usage limit, and a notifier
package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

// every is the longest time between two new runs.
const every = 4 * time.Second

// Demo has the service, its workflows and its providers.
type Demo struct {
	Workflows []*engine.Workflow
	Providers []gateway.Spec

	listener  net.Listener
	client    *http.Client
	upstreams []*chaos.Server
	ledger    ledger
	writer    *contend.Writer
}

// Host is the server that runs the demo.
type Host struct {
	Engine   *engine.Engine
	Address  string // URL of the gateway, with a slash at its end
	Sessions Sessions
}

// New returns a demo. Its service listens on loopback until Run returns.
func New(ctx context.Context) (*Demo, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Demo{listener: l, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	if err := errors.Join(d.createWriter(), d.createWorkflows(), d.createProviders()); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return d, nil
}

// createWriter creates the [contend.Writer] that all steps of the workflow contention share.
func (d *Demo) createWriter() error {
	p, err := retry.Parse("contention")
	if err != nil {
		return err
	}
	d.writer, err = contend.New(contend.Config{Policy: p, Scale: 1.5})
	return err
}

// Run runs the service, starts runs, sends requests to the gateway and resumes the assistant, until
// the context ends.
func (d *Demo) Run(ctx context.Context, h Host) error {
	ctx, cancel := context.WithCancel(ctx)
	srv := &http.Server{Handler: service(), ReadHeaderTimeout: time.Second}
	var servers, users sync.WaitGroup
	servers.Go(func() { _ = srv.Serve(d.listener) }) // returns when srv is closed
	users.Go(func() { d.callModel(ctx, h.Address) })
	users.Go(func() { resumeAssistant(ctx, h.Sessions) })
	defer func() {
		cancel()
		users.Wait()
		for _, up := range d.upstreams {
			_ = up.Close()
		}
		_ = srv.Close()
		servers.Wait()
		d.client.CloseIdleConnections()
	}()
	return d.start(ctx, h.Engine)
}

// start starts runs of all workflows in turn, until the context ends.
func (d *Demo) start(ctx context.Context, e *engine.Engine) error {
	for n := 1; ; n++ {
		w := d.Workflows[(n-1)%len(d.Workflows)]
		if _, err := e.Start(ctx, w, newOrder(n), engine.Source("demo")); err != nil && ctx.Err() == nil {
			return err
		}
		delay := every/4 + rand.N(3*every/4)
		if n <= 2*len(d.Workflows) {
			delay = 300 * time.Millisecond // at first, start all kinds quickly
		}
		if pause(ctx, delay) != nil {
			return nil
		}
	}
}

// pause waits for d, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// assistant is the name of the session in the demo's configuration.
const assistant = "demo-assistant"

// rest is the time between the end of the session and its next start.
const rest = 5 * time.Second

// Sessions lists and resumes the sessions of the server that runs the demo. [*session.Manager]
// implements it.
type Sessions interface {
	List(ctx context.Context) ([]session.Status, error)
	Resume(ctx context.Context, name, by string) error
}

// resumeAssistant resumes the session of the assistant whenever it is completed, until the context
// ends. It does not resume a session that a user has stopped or paused.
func resumeAssistant(ctx context.Context, all Sessions) {
	for pause(ctx, time.Second) == nil {
		list, _ := all.List(ctx) // on an error, the list is empty; try again in a second
		for _, st := range list {
			if st.Name == assistant && st.State == "completed" && st.Ended != nil && time.Since(*st.Ended) >= rest {
				_ = all.Resume(ctx, assistant, "the demo") // on an error, try again in a second
			}
		}
	}
}
