// Package enginetest runs workflows in tests: in virtual time, without files,
// and deterministically.
//
//	func TestOrder(t *testing.T) {
//		run := enginetest.Run(t, order, Order{ID: "4711"})
//		if run.State != "succeeded" {
//			t.Error(run.Error)
//		}
//	}
//
// Hours of backoff pass in microseconds. The steps must call only fakes that wait with package
// time and channels: virtual time does not work with sockets.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// Run starts a run of the workflow in virtual time, waits until it has ended, and returns it with
// its whole history. A dead run does not fail the test: check State.
func Run(t *testing.T, w *engine.Workflow, input any, opts ...engine.StartOption) (run *engine.Info) {
	t.Helper()
	Test(t, func(t *testing.T, e *Engine) {
		t.Helper()
		run = e.Run(w, input, opts...)
	})
	return run
}

// Test calls f with an engine in virtual time that has the given workflows. It returns when f and all
// goroutines that f has started have ended.
func Test(t *testing.T, f func(t *testing.T, e *Engine), workflows ...*engine.Workflow) {
	t.Helper()
	TestConfig(t, engine.Config{Workflows: workflows}, f)
}

// TestConfig is [Test] with an engine that has this configuration, for example with handlers. Log,
// Rand and Logger are set by this package.
func TestConfig(t *testing.T, cfg engine.Config, f func(t *testing.T, e *Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		e := &Engine{t: t, cfg: cfg}
		e.open(cfg.Workflows)
		defer e.close()
		f(t, e)
	})
}

// Engine is an engine in virtual time.
type Engine struct {
	*engine.Engine

	t         *testing.T
	cfg       engine.Config
	store     memlog.Store
	workflows []*engine.Workflow
}

// open opens the engine with these workflows; without any, with those that it has.
func (e *Engine) open(workflows []*engine.Workflow) {
	e.t.Helper()
	if len(workflows) > 0 {
		e.workflows = workflows
	}
	var err error
	cfg := e.cfg
	cfg.Log, cfg.Workflows = e.store.Open(), e.workflows
	if e.Engine, err = open(cfg); err != nil {
		e.t.Fatalf("open the engine: %v", err)
	}
}

// open opens an engine that is deterministic, watches its goroutines, and logs nothing.
func open(cfg engine.Config) (*engine.Engine, error) {
	cfg.Rand, cfg.Logger = rand.New(rand.NewPCG(1, 2)).Uint64, slog.New(slog.DiscardHandler)
	return engine.Open(goroutine.With(context.Background()), cfg)
}

// crash stops an engine as if its process were killed.
func crash(e *engine.Engine) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return e.Close(now)
}

func (e *Engine) close() {
	e.t.Helper()
	if err := e.Close(context.Background()); err != nil {
		e.t.Errorf("close the engine: %v", err)
	}
}

// Run starts a run and waits until it has ended. An error of the engine fails the test, and so
// does a run that waits for a handler or for other code.
func (e *Engine) Run(w *engine.Workflow, input any, opts ...engine.StartOption) *engine.Info {
	e.t.Helper()
	s, err := e.Start(e.t.Context(), w, input, opts...)
	if err != nil {
		e.t.Fatal(err)
	}
	run, err := e.Wait(e.t.Context(), s.ID)
	if err != nil {
		e.t.Fatal(err)
	}
	return run
}

// Start is [engine.Engine.Start]. After [Engine.Crash] the engine still has the workflow.
func (e *Engine) Start(ctx context.Context, w *engine.Workflow, input any, opts ...engine.StartOption) (engine.Started, error) {
	isSame := func(known *engine.Workflow) bool { return known.Name() == w.Name() }
	if w != nil && !slices.ContainsFunc(e.workflows, isSame) {
		e.workflows = append(slices.Clip(e.workflows), w)
	}
	return e.Engine.Start(ctx, w, input, opts...)
}

// Wait is [engine.Engine.Wait]. It returns an error if the run waits for a handler or for other
// code, which would take forever.
func (e *Engine) Wait(ctx context.Context, id string) (*engine.Info, error) {
	for {
		soon, cancel := context.WithTimeout(ctx, time.Hour) // of virtual time
		run, err := e.Engine.Wait(soon, id)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return run, err
		}
		// To describe the run takes long if it has a long history.
		if s, err := e.Stats(ctx); err == nil && !slices.ContainsFunc(s.Workflows, hasParked) {
			continue
		}
		if run, err = e.Get(ctx, id); err != nil {
			return nil, err
		}
		if run.State == engine.StateNeedsHandler {
			return run, fmt.Errorf("run %s of %s waits for a handler or for other code: %s", id, run.Workflow, run.Error)
		}
	}
}

// hasParked reports whether runs of the workflow wait for a handler or for other code.
func hasParked(w engine.WorkflowStats) bool { return w.States[engine.StateNeedsHandler] > 0 }

// Crash stops the engine as if its process were killed, and opens it again with the stored log:
// running attempts are lost. If workflows are given, they replace those of the engine. Handlers must
// return when their context ends, because they still run in this process.
func (e *Engine) Crash(workflows ...*engine.Workflow) {
	e.t.Helper()
	if err := crash(e.Engine); err != nil {
		e.t.Errorf("crash the engine: %v", err)
	}
	synctest.Wait()
	e.open(workflows)
}

// Restart closes the engine as a program that ends does, and opens it again with the stored log:
// running attempts are released. If workflows are given, they replace those of the engine.
func (e *Engine) Restart(workflows ...*engine.Workflow) {
	e.t.Helper()
	e.close()
	e.open(workflows)
}

// Waits returns the delays after the attempts of a step, in order.
func Waits(run *engine.Info, step string) (waits []time.Duration) {
	for _, s := range run.Steps {
		if s.Name != step {
			continue
		}
		for _, a := range s.Attempts {
			if a.Wait != nil {
				waits = append(waits, a.Wait.Delay)
			}
		}
	}
	return waits
}
