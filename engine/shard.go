package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// shard is the engine of one log: everything there is, or in a cluster a part of
// it that this process owns.
//
// It opens and closes its parts and passes requests to the owner. The owner's goroutine
// uses all other parts but commands and queries, which the callers' goroutines use.
type shard struct {
	*process
	number int
	shards int // how many there are
	lease  journal.Lease

	starts chan *request // requests that may have to wait
	others chan *request // requests that must not
	reads  chan *request // requests that change nothing
	room   chan struct{} // there may be a place for an attempt
	stop   chan struct{} // closed by close
	kill   chan struct{} // closed when the shard must end at once
	done   chan struct{} // closed when the owner has returned
	err    error         // why; valid after done
	closed sync.Once
	killed sync.Once
	dead   atomic.Bool // no result of an attempt is stored any more
	given  atomic.Bool // the shard ends because another process gets it

	attempts sync.WaitGroup // handlers that run

	owner      owner
	dispatcher dispatcher
	scheduler  scheduler
	views      viewWriter
	snapshots  snapshotWriter
	health     health
	commands   commands
	queries    queries
}

// newShard returns a shard that keeps its view in a folder; an empty dir means no view.
func newShard(p *process, number, shards int, dir string) *shard {
	sh := &shard{
		process: p, number: number, shards: shards,
		starts: make(chan *request, 1024), others: make(chan *request, 1024), reads: make(chan *request, 1024), room: make(chan struct{}, 1),
		stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
	}
	sh.health.init(&p.cfg)
	sh.owner.init(sh)
	sh.dispatcher.init(sh)
	sh.scheduler.init(sh)
	sh.views.init(sh, dir)
	sh.snapshots.init(sh)
	sh.commands.sh, sh.queries.sh = sh, sh
	return sh
}

// openFolder opens the log that is in a folder.
func openFolder(ctx context.Context, cfg Config) (journal.Log, error) {
	mode := sqlitelog.Full
	if cfg.Durability == OS {
		mode = sqlitelog.OS
	}
	return sqlitelog.Open(ctx, sqlitelog.Config{Dir: cfg.Dir, Durability: mode})
}

// open takes the shard over: it restores the state, and records that this process has it.
func (sh *shard) open(ctx context.Context, log journal.Log) (err error) {
	defer func() {
		if err != nil {
			sh.shut()
		}
	}()
	if sh.lease, err = log.Lease(ctx, sh.number); err != nil {
		return err
	}
	if err := move.Check(ctx, sh.lease); err != nil {
		return err
	}
	boot := sh.cfg.uptime
	if sh.cfg.Log != nil { // it may have been another machine that was there last
		boot = func() (time.Duration, string) { return 0, "" }
	}
	sh.owner.clock = newClock(boot)
	r := recovery{sh: sh, o: &sh.owner}
	if err := r.run(ctx); err != nil {
		return err
	}
	sh.scheduler.warn()
	sh.views.startWriting()
	return nil
}

// shut closes what was opened.
func (sh *shard) shut() {
	sh.snapshots.close()
	sh.views.close()
	if sh.lease != nil {
		if err := sh.lease.Release(); err != nil {
			sh.cfg.Logger.Error("release the log", "error", err)
		}
	}
}

// run owns the state until the shard is closed.
func (sh *shard) run() {
	defer close(sh.done)
	err := sh.owner.serve()
	if err != nil && !errors.Is(err, ErrClosed) {
		sh.cfg.Logger.Error("engine stopped", "error", err)
	}
	sh.err = err
	sh.abandon()
	if !errors.Is(err, ErrClosed) || errors.Is(err, journal.ErrStale) {
		sh.views.stopWriting()
		sh.shut()
	}
}

// abandon answers everyone who still waits.
func (sh *shard) abandon() {
	sh.owner.abandon()
	sh.dead.Store(true)
	sh.dispatcher.abandon()
}

// close ends the shard in order, or at once when the context ends.
func (sh *shard) close(ctx context.Context) {
	if ctx.Err() != nil { // there is no time for an orderly end, not even to begin one
		sh.killed.Do(func() { close(sh.kill) })
	}
	sh.closed.Do(func() { close(sh.stop) })
	select {
	case <-sh.done:
	case <-ctx.Done():
		sh.killed.Do(func() { close(sh.kill) })
		<-sh.done
	}
}

// stopError returns why the shard has stopped, nil if it has not.
func (sh *shard) stopError() error {
	select {
	case <-sh.done:
		return sh.err
	default:
		return nil
	}
}

// closedError returns the error of a request to a shard that has stopped.
func (sh *shard) closedError() error {
	if sh.err == nil || errors.Is(sh.err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, sh.err)
}

// request is something that is asked of the owner.
type request struct {
	start  *machine.Start // with def: a start
	def    *machine.Definition
	result *machine.Result // the end of an attempt
	do     func(*turn) error
	read   bool // it changes nothing
	done   chan struct{}
	id     machine.ID
	err    error

	existing  bool // of a start: the key is that of the run id
	sameInput bool // and its input is the same, byte for byte
}

// do asks the owner to do something, and waits until what follows is stored. If
// the context ends first it may still be done: what f fills in must not be read then.
func (sh *shard) do(ctx context.Context, f func(*turn) error) error {
	return sh.send(ctx, sh.others, &request{do: f, done: make(chan struct{})})
}

// ask reads the state. It is answered also while nothing can be stored.
func ask[T any](ctx context.Context, sh *shard, f func(*turn) (T, error)) (v T, err error) {
	answer := new(T) // not v: see do
	err = sh.send(ctx, sh.reads, &request{read: true, done: make(chan struct{}), do: func(t *turn) (err error) {
		*answer, err = f(t)
		return err
	}})
	if err == nil {
		v = *answer
	}
	return v, err
}

func (sh *shard) send(ctx context.Context, to chan *request, r *request) error {
	select {
	case to <- r:
	case <-sh.done:
		return notAccepted{sh.closedError()}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-r.done:
		return r.err
	case <-sh.done:
		return sh.answerOf(r)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answerOf returns the answer of a request, if the engine stopped after it.
func (sh *shard) answerOf(r *request) error {
	select {
	case <-r.done:
		return r.err
	default:
		return sh.closedError()
	}
}
