package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// ErrClosed says that the engine has been closed, or has stopped.
var ErrClosed = errors.New("the engine is closed")

// Engine runs workflows. Its methods may be called by several goroutines.
//
// It has many methods because it is the whole of what a program uses: start, read and
// change runs, schedules and workflows. Each method checks its arguments and passes a call
// to a shard by the router; what a shard does is not here.
type Engine struct {
	process
	router
	deadlocks deadlockWatcher
	log       journal.Log

	observing chan struct{} // closed when the observer has seen everything; nil without one
	done      chan struct{} // closed when nothing runs any more
	err       error         // why; valid after done
}

// process is what the engine and all its shards have in common.
type process struct {
	cfg        Config
	hub        hub
	handlers   registry
	places     places
	quarantine quarantine
	pens       chan struct{} // as many views as it holds are written at a time

	getRun func(ctx context.Context, id string) (*Info, error) // from any shard
}

// Open opens an engine, and goes on with everything that is not finished. In a
// cluster it does so with the shards that fall to this process, as they do.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{done: make(chan struct{})}
	e.cfg = cfg
	e.getRun = e.Get
	e.router.process = &e.process
	e.deadlocks.router = &e.router
	e.hub.init()
	e.places.free = cfg.Concurrency
	e.quarantine.wants, e.quarantine.waiting = map[*shard]int{}, map[*shard]struct{}{}
	e.deadlocks.waits = map[handlerWait]int{}
	e.pens = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	if err := e.handlers.add(cfg.Workflows, cfg.Handlers); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e.hub.wanted.Store(cfg.Observer != nil) // also what was lost with the last process is shown
	if err := e.begin(ctx); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if cfg.Observer != nil {
		e.observing = make(chan struct{})
		go e.observe()
	}
	go e.run()
	return e, nil
}

// begin opens what there is to open.
func (e *Engine) begin(ctx context.Context) (err error) {
	if e.log = e.cfg.Log; e.log == nil {
		if e.log, err = openFolder(ctx, e.cfg); err != nil {
			return err
		}
	}
	if log, ok := e.log.(journal.Cluster); ok {
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

// run waits until nothing runs any more.
func (e *Engine) run() {
	if e.cluster != nil {
		e.err = e.cluster.run()
	} else {
		e.alone.run()
		e.err = e.alone.err
	}
	e.deadlocks.close()
	if err := e.log.Close(); err != nil {
		e.cfg.Logger.Error("close the log", "error", err)
	}
	e.hub.close()
	close(e.done)
}

// Close ends the engine: no attempt begins, and the contexts of those that run are
// canceled. Close waits for them until its own context ends. What they have not finished begins again
// when the engine is opened next, or at once by another process of the cluster.
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

// Backup copies everything to a folder, while the engine goes on. The copy is
// opened like an engine's own folder. It has everything that was acknowledged
// before the call, and attempts that were running then are lost in it. Of a
// cluster the copy is one folder too, from which [move.Move] makes a cluster again.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	_, err := e.BackupWithout(ctx, dir, nil)
	return err
}

// BackupWithout is Backup of a cluster that has lost shards: what is in them is left
// out. A shard that can be read, or may be later, is an error. Of a cluster it returns
// what was copied.
func (e *Engine) BackupWithout(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	if e.cluster != nil {
		copied, err = move.Copy(ctx, e.cluster.log, dir, shards)
	} else if len(shards) > 0 {
		err = fmt.Errorf("shard %d %w: this is no cluster", shards[0], move.ErrNotLost)
	} else if b, ok := e.alone.lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this log can't be copied")
	}
	if err != nil {
		return move.Moved{}, fmt.Errorf("backup: %w", err)
	}
	return copied, nil
}

// DiskUsage returns the bytes that the engine's folder takes, by file.
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
