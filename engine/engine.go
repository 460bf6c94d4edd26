package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tideover/tideover/engine/internal/cluster"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
	"github.com/tideover/tideover/retry"
)

// Engine runs workflows. Its methods may be called by several goroutines.
//
// It has many methods because a program does everything through it: it starts, reads and
// changes runs, schedules and workflows. Each method checks its arguments and sends a call
// to a shard through the router. The shards do the work.
type Engine struct {
	process shard.Process
	cfg     Config
	router  cluster.Router
	log     journal.Log

	observing chan struct{} // closed when the observer has got all events; nil without an observer
	done      chan struct{} // closed when the engine has stopped
	err       error         // why the engine has stopped; valid after done is closed
}

// Open opens an engine and continues all runs that are not finished. In a cluster it
// continues the runs of each shard when the shard is assigned to this process.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{cfg: cfg, done: make(chan struct{})}
	e.process.Init(cfg.settings(), goroutine.Of(ctx))
	if err := register(&e.process.Handlers, &cfg); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	var events iter.Seq2[Event, uint64]
	if cfg.Observer != nil { // before begin: the observer gets the events of attempts that were lost with the last process
		events = e.process.Hub.Events(context.Background(), 0)
	}
	if err := e.begin(ctx); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if cfg.Observer != nil {
		e.observing = make(chan struct{})
		go e.observe(events)
	}
	go e.run()
	e.process.Judge()
	return e, nil
}

// begin opens the log and its shards.
func (e *Engine) begin(ctx context.Context) (err error) {
	if e.log = e.cfg.Log; e.log == nil {
		e.log, err = sqlitelog.Open(ctx, sqlitelog.Config{
			Dir: e.cfg.Dir, Durability: sqlitelog.Durability(e.cfg.Durability), AcceptLoss: e.cfg.AcceptLoss, CheckEntry: machine.CheckEntry,
		})
		if err != nil {
			return err
		}
	}
	if err := e.router.Open(ctx, &e.process, e.log); err != nil {
		return errors.Join(err, e.log.Close())
	}
	return nil
}

// run runs the shards until the engine stops, and closes the log and the event stream then.
func (e *Engine) run() {
	e.err = e.router.Run()
	if err := e.log.Close(); err != nil {
		e.cfg.Logger.Error("can't close the log", "error", err)
	}
	e.process.Hub.Close()
	close(e.done)
}

// observe calls the observer with each event of this process, until the stream ends.
func (e *Engine) observe(events iter.Seq2[Event, uint64]) {
	defer close(e.observing)
	for ev, missed := range events {
		if missed > 0 {
			e.cfg.Logger.Warn("the observer was too slow", "events_missed", missed)
		}
		if ev.Member == "" {
			e.show(ev.Event)
		}
	}
}

// show calls the observer with an event. It logs a panic of the observer.
func (e *Engine) show(ev retry.Event) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("the observer panicked", "panic", p)
		}
	}()
	e.cfg.Observer(ev)
}

// Close stops the engine: no attempt begins any more, and the contexts of running attempts
// are canceled. Close waits for these attempts until ctx ends. Attempts that have not
// finished are made again when the engine is opened next, or soon by another process of
// the cluster.
func (e *Engine) Close(ctx context.Context) error {
	e.router.Close(ctx)
	<-e.done
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

// Done returns a channel that is closed when the engine has stopped, by Close or because
// of an error. [Engine.Err] returns the reason.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns why the engine has stopped: [ErrClosed] after Close. It is nil while the
// engine runs.
func (e *Engine) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}

// Backup copies all data to the folder dir, while the engine keeps running. [Open] can
// open the copy as [Config.Dir]. The copy has everything that was acknowledged before the
// call; attempts that were running then count as lost in it. The backup of a cluster is
// one folder too, and [move.Move] makes a cluster of it again.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	_, err := e.router.Backup(ctx, dir, nil)
	return err
}

// ErrRegistered says that another workflow with the same name is registered.
var ErrRegistered = workflow.ErrRegistered

// Register adds workflows. A workflow replaces another one with the same name for new runs.
// Steps that waited for a handler of these workflows continue.
func (e *Engine) Register(workflows ...*Workflow) error {
	if err := e.process.Handlers.Add(coresOf(workflows), nil, nil); err != nil {
		return err
	}
	return e.router.WakeShards()
}

// Replace replaces all workflows for new runs. Runs in progress continue with the
// definition that they began with.
func (e *Engine) Replace(workflows []*Workflow) error {
	if err := e.process.Handlers.Replace(coresOf(workflows)); err != nil {
		return err
	}
	return e.router.WakeShards()
}

// Workflow returns the workflow that is registered with this name for new runs.
func (e *Engine) Workflow(name string) (*Workflow, bool) {
	core := e.process.Handlers.Workflow(name)
	if core == nil {
		return nil, false
	}
	return core.Public.(*Workflow), true
}

// Workflows returns the workflows that are registered for new runs, in no particular order.
func (e *Engine) Workflows() []*Workflow {
	cores := e.process.Handlers.Workflows()
	list := make([]*Workflow, len(cores))
	for i, core := range cores {
		list[i] = core.Public.(*Workflow)
	}
	return list
}
