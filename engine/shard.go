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

// shard runs the runs of one log. An engine without a cluster has one shard with all runs.
// In a cluster each process owns some of the shards.
//
// The shard opens and closes its parts and passes requests to the owner. commands, queries
// and health are used by the goroutines of callers. The owner's goroutine uses the other
// parts, except for a few of their methods and fields that others use too: get and refresh of
// views, set and list of scheduler, and handlerReturned and stuckNow of dispatcher.
type shard struct {
	*process
	number int
	shards int // number of all shards
	lease  journal.Lease

	starts chan *request // starts of runs: they wait while the view is far behind
	others chan *request // other requests that change the state
	reads  chan *request // requests that only read the state
	room   chan struct{} // wakes the owner: an attempt may be able to begin
	stop   chan struct{} // closed by close: the owner ends in order
	kill   chan struct{} // closed when the shard must end at once
	done   chan struct{} // closed when the owner has returned
	err    error         // why the owner has returned; valid after done is closed
	closed sync.Once
	killed sync.Once
	dead   atomic.Bool // the owner has stopped: results of attempts are not stored any more
	given  atomic.Bool // the shard ends because another process takes it over

	attempts sync.WaitGroup // running handlers
	errands  errandQueue

	owner      owner
	dispatcher dispatcher
	scheduler  scheduler
	views      viewWriter
	snapshots  snapshotWriter
	health     health
	pauses     pauses
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

// openFolder opens the log in the folder cfg.Dir.
func openFolder(ctx context.Context, cfg Config) (journal.Log, error) {
	mode := sqlitelog.Full
	if cfg.Durability == OS {
		mode = sqlitelog.OS
	}
	return sqlitelog.Open(ctx, sqlitelog.Config{Dir: cfg.Dir, Durability: mode, AcceptLoss: cfg.AcceptLoss, CheckEntry: machine.CheckEntry})
}

// open takes the lease of the shard, restores the state, and records that this process owns
// the shard now.
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
	if sh.cfg.Log != nil {
		boot = func() (time.Duration, string) { return 0, "" }
	}
	if l, ok := sh.lease.(journal.Clocked); ok {
		boot = l.SinceBoot
	}
	sh.owner.clock = newClock(sh.cfg.wall, boot)
	r := recovery{sh: sh, o: &sh.owner}
	if err := r.run(ctx); err != nil {
		return err
	}
	sh.pauses.update(sh.owner.m)
	sh.scheduler.warn()
	sh.views.startWriting()
	return nil
}

// shut closes the snapshots and the view, and releases the lease.
func (sh *shard) shut() {
	sh.snapshots.close()
	sh.views.close()
	if sh.lease != nil {
		if err := sh.lease.Release(); err != nil {
			sh.cfg.Logger.Error("can't release the lease of the log", "error", err)
		}
	}
}

// run runs the owner until the shard is closed or fails, and cleans up.
func (sh *shard) run() {
	defer close(sh.done)
	err := sh.owner.serve()
	if err != nil && !errors.Is(err, ErrClosed) {
		sh.cfg.Logger.Error("engine stopped", "error", err)
	}
	sh.err = err
	sh.owner.abandon()
	sh.dead.Store(true)
	sh.dispatcher.abandon()
	if !errors.Is(err, ErrClosed) || errors.Is(err, journal.ErrStale) {
		sh.views.stopWriting()
		sh.shut()
	}
}

// close stops the shard: it waits until the attempts have ended, or stops at once when the
// context ends.
func (sh *shard) close(ctx context.Context) {
	if ctx.Err() != nil { // no time is left to end in order
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

// wake makes the owner try to begin attempts, unless it is woken already.
func (sh *shard) wake() {
	select {
	case sh.room <- struct{}{}:
	default:
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

// request is a request to the owner: a start, the result of an attempt, operations or the end of a
// call of a flow's function, or a function to call.
type request struct {
	start  *machine.Start // the start of a run with the definition def
	def    *machine.Definition
	result *machine.Result   // the end of an attempt
	call   *flowCall         // the call of a flow's function: it waits for group, or has ended if that is nil
	group  *opGroup          // operations to begin
	do     func(*turn) error // a function that the owner calls, if start, result and call are nil
	read   bool              // do only reads the state
	done   chan struct{}     // closed when the request is answered; nil if the sender does not wait
	id     machine.ID        // answer to a start: the id of the run
	err    error             // answer: why the request failed

	existing  bool // answer to a start: the key belongs to the earlier run id
	sameInput bool // answer to a start, if existing: the inputs are the same bytes
}

// do has the owner call f, and waits until the changes that f records are stored. If the
// context ends first, f may still be called later: then the caller must not read the
// variables that f sets.
func (sh *shard) do(ctx context.Context, f func(*turn) error) error {
	return sh.send(ctx, sh.others, &request{do: f, done: make(chan struct{})})
}

// ask has the owner call f, which only reads the state, and returns its result. The owner
// answers also while it can't store anything.
func ask[T any](ctx context.Context, sh *shard, f func(*turn) (T, error)) (v T, err error) {
	answer := new(T) // not v: f may set it after ask has returned
	err = sh.send(ctx, sh.reads, &request{read: true, done: make(chan struct{}), do: func(t *turn) (err error) {
		*answer, err = f(t)
		return err
	}})
	if err == nil {
		v = *answer
	}
	return v, err
}

// post sends a request to the owner, and does not wait for an answer. It does nothing if the owner
// has stopped.
func (sh *shard) post(r *request) {
	select {
	case sh.others <- r:
		return
	default:
	}
	select {
	case sh.others <- r:
	case <-sh.done:
	}
}

func (sh *shard) send(ctx context.Context, to chan *request, r *request) error {
	if !r.read {
		var cancel context.CancelFunc
		if ctx, cancel = sh.health.limitStoring(ctx); ctx.Err() != nil {
			cancel()
			return context.Cause(ctx)
		}
		defer cancel()
	}
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

// answerOf returns the error of a request when the shard has stopped: the answer if there
// was one before, else that the shard is closed.
func (sh *shard) answerOf(r *request) error {
	select {
	case <-r.done:
		return r.err
	default:
		return sh.closedError()
	}
}
