package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
)

const (
	fullEntry = 500_000 // an entry of this size takes no further command
	fullTurn  = 4096    // nor one with so many
	dueAtOnce = 1000    // timers of a turn: a herd is let go in parts
	farBehind = 100_000 // runs the view may be behind before new ones wait
)

// owner is the state of the engine and what goes on with it. One goroutine has
// it, that of run.
type owner struct {
	m      *machine.Machine
	clock  *clock
	seq    uint64 // last entry of the log
	entry  machine.Entry
	turn   turn
	random func() uint64

	running     map[attemptKey]*attempt
	isolated    isolated
	zombies     map[zombie]bool // handlers that were given up; true for those that have returned before that was known
	patience    context.Context // for how long the disk is waited for
	waiters     map[machine.ID][]chan struct{}
	schedules   map[*machine.Schedule]Schedule // as read
	unstartable map[string]bool                // schedules that are due, and whose workflow is not registered here
	known       int                            // version of the registry that parked steps were held against
	openedAt    time.Time                      // parking begins a little later
	stopping    bool
	purgedAt    time.Time
	viewer      viewer
	snapshots   snapshots
	cold        store.Paging
	health      health
	news        news
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

func (o *owner) init(sh *shard) {
	o.turn.sh, o.news.hub = sh, &sh.hub
	o.running = map[attemptKey]*attempt{}
	o.zombies = map[zombie]bool{}
	o.patience = context.Background()
	o.schedules = map[*machine.Schedule]Schedule{}
	o.unstartable = map[string]bool{}
	o.waiters = map[machine.ID][]chan struct{}{}
	if o.random = sh.cfg.Rand; o.random == nil {
		var seed [32]byte
		_, _ = rand.Read(seed[:])
		o.random = mathrand.New(mathrand.NewChaCha8(seed)).Uint64
	}
}

// do asks the owner to do something, and waits until what follows is stored. If
// the context ends first it may still be done: what f fills in must not be read then.
func (sh *shard) do(ctx context.Context, f func(*turn) error) error {
	return sh.send(ctx, sh.others, &request{do: f, done: make(chan struct{})})
}

func (sh *shard) send(ctx context.Context, to chan *request, r *request) error {
	select {
	case to <- r:
	case <-sh.done:
		return untaken{sh.reason()}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-r.done:
		return r.err
	case <-sh.done:
		return sh.answered(r)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// answered returns the answer of a request, if the engine stopped after it.
func (sh *shard) answered(r *request) error {
	select {
	case <-r.done:
		return r.err
	default:
		return sh.reason()
	}
}

func (sh *shard) reason() error {
	if sh.err == nil || errors.Is(sh.err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, sh.err)
}

// run owns the state until the engine is closed.
func (sh *shard) run() {
	defer close(sh.done)
	err := sh.serve()
	if err != nil && !errors.Is(err, ErrClosed) {
		sh.cfg.Logger.Error("engine stopped", "error", err)
	}
	sh.err = err
	sh.abandon()
	if !errors.Is(err, ErrClosed) || errors.Is(err, journal.ErrStale) {
		sh.viewer.stop()
		sh.shut()
	}
}

func (sh *shard) serve() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := sh.stop
	for {
		starts := sh.starts
		if sh.stopping || sh.viewer.behind(sh.m) > farBehind {
			starts = nil
		}
		var first *request
		woken := false
		select {
		case first = <-sh.others:
		case first = <-sh.reads:
		case first = <-starts:
		case <-timer.C:
		case <-sh.room:
			woken = true
		case <-sh.viewer.wake(sh.m):
		case err := <-sh.viewer.written:
			sh.viewed(err)
		case w := <-sh.snapshots.wake():
			sh.snapshots.advance(sh, w)
		case <-sh.lease.Lost():
			return fmt.Errorf("%w: %w", ErrClosed, journal.ErrStale)
		case <-stop:
			select {
			case <-sh.kill:
				return sh.finish()
			default:
			}
			stop = nil
			sh.stopping = true
			sh.process.quarantine.leave(sh)
			sh.releaseAll()
		case <-sh.kill:
			return sh.finish()
		}
		if err := sh.take(first, starts); err != nil {
			return err
		}
		if woken && (!sh.turn.full || sh.stopping) {
			sh.process.places.pass()
		}
		if sh.stopping && len(sh.running) == 0 {
			return sh.finish()
		}
		sh.viewer.feed(sh)
		sh.snapshots.moveCold(sh)
		sh.snapshots.begin(sh)
		sh.sleep(timer)
	}
}

// sleep sets the timer to the next thing that is due.
func (sh *shard) sleep(timer *time.Timer) {
	wait := min(time.Minute, sh.purgeEvery(), sh.snapshots.age(sh))
	if !sh.viewer.reopen.IsZero() {
		wait = min(wait, time.Until(sh.viewer.reopen))
	}
	if sh.snapshots.retains(sh) {
		wait = min(wait, time.Until(sh.snapshots.rest))
	}
	if sh.snapshots.chill || sh.turn.more {
		wait = 0
	}
	if next := sh.next(); next < sh.clock.last+int64(wait) {
		wait = time.Duration(next - sh.clock.wall(time.Now()))
	}
	timer.Reset(max(wait, 0))
}

// next returns when something is due.
func (sh *shard) next() int64 {
	if sh.stopping {
		return 1<<63 - 1
	}
	next := min(sh.m.Next(), sh.schedulesDue())
	if hold := sh.openedAt.Add(settle).UnixNano(); len(sh.m.Busy()) > 0 && sh.clock.last < hold {
		next = min(next, hold)
	}
	return min(next, sh.isolated.next(sh.m))
}

// take gathers what there is to do, stores what follows, and acts on it.
func (sh *shard) take(first *request, starts chan *request) error {
	t := &sh.turn
	if err := sh.begin(); err != nil {
		return err
	}
	sh.handle(first)
	for n := 0; n < fullTurn && sh.entry.Size() < fullEntry; n++ {
		var r *request
		select {
		case r = <-sh.others:
		case r = <-sh.reads:
		default:
			select {
			case r = <-sh.others:
			case r = <-sh.reads:
			case r = <-starts:
			default:
			}
		}
		if r == nil {
			break
		}
		sh.handle(r)
	}
	if !sh.stopping {
		sh.due()
		sh.dispatch()
	}
	if err := sh.health.fatal(); err != nil {
		return err
	}
	if err := sh.commit(); err != nil {
		return err
	}
	t.act()
	runtime.Gosched() // those who were answered or called do their work before more is gathered
	return nil
}

// abandon answers everybody who still waits.
func (sh *shard) abandon() {
	for _, r := range sh.turn.requests {
		if r.done != nil {
			r.err = sh.reason()
			close(r.done)
		}
	}
	for _, list := range sh.waiters {
		for _, w := range list {
			close(w)
		}
	}
	sh.dead.Store(true)
	for _, a := range sh.turn.launches {
		a.ended.Store(true) // it did not begin
		if a.lent {
			a.left.Store(true)
		} else {
			a.leave()
		}
	}
	for _, a := range sh.running {
		a.end(ErrClosed)
		if a.told.Load() {
			a.leave()
		}
	}
	sh.process.places.leave(sh)
	sh.process.quarantine.leave(sh)
}
