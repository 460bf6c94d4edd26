package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// Engine runs workflows. Its methods may be called by several goroutines.
//
// It has many methods because a program does everything through it: it starts, reads and
// changes runs, schedules and workflows. Each method checks its arguments and sends a call
// to a shard through the router. The shards do the work.
type Engine struct {
	process
	cfg Config
	router
	deadlocks deadlockWatcher
	log       journal.Log

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
	e.process.cfg = cfg.settings()
	e.replay, _ = cfg.Log.(*replay.Log)
	e.watch = goroutine.Of(ctx)
	e.router.process, e.peers = &e.process, &e.router
	e.deadlocks.router = &e.router
	e.hub.init()
	e.process.admission = admission.NewShared(cfg.Concurrency, cfg.maxFunctions)
	e.deadlocks.waits = map[handlerWait]int{}
	e.viewWriters = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	if err := register(&e.handlers, &cfg); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e.hub.wanted.Store(cfg.Observer != nil) // before begin: the observer gets the events of attempts that were lost with the last process
	if err := e.begin(ctx); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if cfg.Observer != nil {
		e.observing = make(chan struct{})
		go e.observe()
	}
	go e.run()
	if e.replay != nil && !e.replay.Run.IsFlow() {
		e.replay.Report(judgeSteps(&e.handlers, e.replay.Run))
	}
	return e, nil
}

// begin opens the log and joins the cluster, or opens the only shard without a cluster.
func (e *Engine) begin(ctx context.Context) (err error) {
	if e.log = e.cfg.Log; e.log == nil {
		if e.log, err = openFolder(ctx, e.cfg); err != nil {
			return err
		}
	}
	if log, ok := e.log.(journal.Cluster); ok {
		e.cluster, err = join(ctx, &e.process, log)
	} else {
		e.alone = newShard(&e.process, 0, 1, e.cfg.Dir)
		err = e.alone.open(ctx, e.log)
	}
	if err != nil {
		return errors.Join(err, e.log.Close())
	}
	return nil
}

// run runs the shards until the engine stops, and closes the log and the event stream then.
func (e *Engine) run() {
	if e.cluster != nil {
		e.err = e.cluster.run()
	} else {
		e.alone.run()
		e.err = e.alone.err
	}
	e.deadlocks.close()
	if err := e.log.Close(); err != nil {
		e.cfg.Logger.Error("can't close the log", "error", err)
	}
	e.hub.close()
	close(e.done)
}

// Close stops the engine: no attempt begins any more, and the contexts of running attempts
// are canceled. Close waits for these attempts until ctx ends. Attempts that have not
// finished are made again when the engine is opened next, or soon by another process of
// the cluster.
func (e *Engine) Close(ctx context.Context) error {
	if e.cluster != nil {
		e.cluster.close(ctx)
	} else {
		e.alone.close(ctx)
	}
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
	_, err := e.router.backup(ctx, dir, nil)
	return err
}

// backup copies all data to the folder, except those of the given shards.
func (r *router) backup(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	if r.cluster != nil {
		copied, err = move.Copy(ctx, r.cluster.log, dir, shards)
	} else if len(shards) > 0 {
		err = fmt.Errorf("shard %d %w: this is no cluster", shards[0], move.ErrNotLost)
	} else if b, ok := r.alone.lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this kind of log does not support backups")
	}
	if err != nil {
		return move.Moved{}, fmt.Errorf("backup: %w", err)
	}
	return copied, nil
}

// openFolder opens the log in the folder cfg.Dir.
func openFolder(ctx context.Context, cfg Config) (journal.Log, error) {
	mode := sqlitelog.Full
	if cfg.Durability == OS {
		mode = sqlitelog.OS
	}
	return sqlitelog.Open(ctx, sqlitelog.Config{Dir: cfg.Dir, Durability: mode, AcceptLoss: cfg.AcceptLoss, CheckEntry: machine.CheckEntry})
}

// judgeSteps returns the verdict about a run of steps: it is parked at a step without a handler.
func judgeSteps(r *workflow.Registry, run *machine.Run) (v replay.Verdict) {
	var missing []string
	for n, s := range run.Live() {
		switch {
		case s.Status == machine.Complete:
		case r.HasCode(run, n):
			v.Next = append(v.Next, run.StepName(n))
		default:
			missing = append(missing, missingHandler(run, n))
		}
	}
	v.Parked = strings.Join(missing, "; ")
	return v
}
