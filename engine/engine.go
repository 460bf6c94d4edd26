package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
)

// ErrClosed says that the engine has been closed, or has stopped.
var ErrClosed = errors.New("the engine is closed")

// Engine runs workflows. Its methods may be called by several goroutines.
type Engine struct {
	cfg   Config
	log   journal.Log
	lease journal.Lease
	view  atomic.Pointer[view.View] // nil if nothing is ever forgotten
	hub   hub

	starts chan *request // what may have to wait
	others chan *request // what must not
	stop   chan struct{} // closed by Close
	kill   chan struct{} // closed when the end must not be waited for
	done   chan struct{} // closed when the owner has returned
	err    error         // why; valid after done
	closed sync.Once
	killed sync.Once

	handlers  registry
	attempts  sync.WaitGroup // handlers that run
	observing chan struct{}  // closed when the observer has seen everything; nil without one
	stuck     atomic.Int64

	owner // the state; belongs to the goroutine of run
}

// Open opens an engine, and goes on with everything that is not finished.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{
		cfg: cfg, starts: make(chan *request, 1024), others: make(chan *request, 1024),
		stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
	}
	e.init(e)
	e.hub.init()
	if err := e.handlers.add(cfg.Workflows, cfg.Handlers); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if err := e.open(ctx); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if cfg.Observer != nil {
		e.hub.wanted.Store(true)
		e.observing = make(chan struct{})
		go e.observe()
	}
	go e.run()
	return e, nil
}

// Close ends the engine: no attempt begins, those that run are told to end and
// waited for until the context ends. What they have not finished begins again
// when the engine is opened next.
func (e *Engine) Close(ctx context.Context) error {
	if ctx.Err() != nil { // there is no time for an orderly end, not even to begin one
		e.killed.Do(func() { close(e.kill) })
	}
	e.closed.Do(func() { close(e.stop) })
	select {
	case <-e.done:
	case <-ctx.Done():
		e.killed.Do(func() { close(e.kill) })
		<-e.done
	}
	if e.observing != nil {
		select {
		case <-e.observing:
		case <-ctx.Done():
		}
	}
	if errors.Is(e.err, ErrClosed) {
		return nil
	}
	return e.err
}

// Done is closed when the engine has stopped, by Close or because it can't go on.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns why the engine has stopped.
func (e *Engine) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}
