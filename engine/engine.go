package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// ErrClosed says that the engine has been closed, or has stopped because of an error.
var ErrClosed = errors.New("the engine is closed")

// Engine runs workflows. Its methods may be called by several goroutines.
//
// It has many methods because a program does everything through it: it starts, reads and
// changes runs, schedules and workflows. Each method checks its arguments and sends a call
// to a shard through the router. The shards do the work.
type Engine struct {
	process
	router
	deadlocks deadlockWatcher
	log       journal.Log

	observing chan struct{} // closed when the observer has got all events; nil without an observer
	done      chan struct{} // closed when the engine has stopped
	err       error         // why the engine has stopped; valid after done is closed
}

// process has the data that the engine and all its shards share.
type process struct {
	cfg        Config
	hub        hub
	handlers   registry
	places     places
	functions  places // for calls of functions of flows
	quarantine quarantine
	replay     *replay.Log   // not nil: the engine only judges how code would continue one run: see replay.go
	pens       chan struct{} // semaphore: limits how many views are written at the same time
	encoders   sync.Pool     // encoders of snapshots, which garbage collections remove from it

	members members                                             // nil without a cluster
	getRun  func(ctx context.Context, id string) (*Info, error) // reads a run from any shard

	childShard func(ctx context.Context, w *Workflow) (int, error) // the shard of the children of a workflow; nil without a cluster
	askShard   func(ctx context.Context, shard int, c *call) error
	askRun     func(ctx context.Context, run string, c *call) (answer, error)
	cancelRun  func(ctx context.Context, run, by string) error
}

// Open opens an engine and continues all runs that are not finished. In a cluster it
// continues the runs of each shard when the shard is assigned to this process.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{done: make(chan struct{})}
	e.cfg = cfg
	e.replay, _ = cfg.Log.(*replay.Log)
	e.getRun, e.askRun, e.cancelRun = e.Get, e.of, e.cancelChain
	e.router.process = &e.process
	e.deadlocks.router = &e.router
	e.hub.init()
	e.places.init(cfg.Concurrency)
	e.functions.total, e.functions.free = cfg.maxFunctions, cfg.maxFunctions
	e.quarantine.wants, e.quarantine.waiting = map[*shard]int{}, map[*shard]struct{}{}
	e.deadlocks.waits = map[handlerWait]int{}
	e.pens = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	if err := e.handlers.add(cfg.Workflows, cfg.Handlers, cfg.Functions); err != nil {
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
		e.replay.Report(e.handlers.judgeSteps(e.replay.Run))
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
		e.members = log
		e.cluster, err = join(ctx, e, log)
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
	_, err := e.BackupWithout(ctx, dir, nil)
	return err
}

// BackupWithout is [Engine.Backup] for a cluster that has lost shards: it leaves out the
// given shards. It fails if one of them can be read, or may become readable later. It
// returns what was copied, but only for a cluster.
func (e *Engine) BackupWithout(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	if e.cluster != nil {
		copied, err = move.Copy(ctx, e.cluster.log, dir, shards)
	} else if len(shards) > 0 {
		err = fmt.Errorf("shard %d %w: this is no cluster", shards[0], move.ErrNotLost)
	} else if b, ok := e.alone.lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this kind of log does not support backups")
	}
	if err != nil {
		return move.Moved{}, fmt.Errorf("backup: %w", err)
	}
	return copied, nil
}

// DiskUsage returns the size in bytes of each file in [Config.Dir], by its path relative
// to Dir.
func (e *Engine) DiskUsage() (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(e.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			name, _ := filepath.Rel(e.cfg.Dir, path)
			sizes[name] = info.Size()
		}
		return err
	})
	return sizes, err
}
