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

	running   map[attemptKey]*attempt
	zombies   map[zombie]bool // handlers that were given up; true for those that have returned before that was known
	patience  context.Context // for how long the disk is waited for
	slots     int             // attempts that take part in Concurrency
	waiters   map[machine.ID][]chan struct{}
	schedules map[*machine.Schedule]Schedule // as read
	known     int                            // version of the registry that parked steps were held against
	openedAt  time.Time                      // parking begins a little later
	stopping  bool
	purgedAt  time.Time
	viewer    viewer
	snapshots snapshots
	cold      cold
	health    health
}

// request is something that is asked of the owner.
type request struct {
	start  *machine.Start // with def: a start
	def    *machine.Definition
	result *machine.Result // the end of an attempt
	do     func(*turn) error
	done   chan struct{}
	id     machine.ID
	err    error
}

func (o *owner) init(e *Engine) {
	o.turn.e = e
	o.running = map[attemptKey]*attempt{}
	o.zombies = map[zombie]bool{}
	o.patience = context.Background()
	o.schedules = map[*machine.Schedule]Schedule{}
	o.waiters = map[machine.ID][]chan struct{}{}
	if o.random = e.cfg.Rand; o.random == nil {
		var seed [32]byte
		_, _ = rand.Read(seed[:])
		o.random = mathrand.New(mathrand.NewChaCha8(seed)).Uint64
	}
}

// do asks the owner to do something, and waits until what follows is stored. If
// the context ends first it may still be done: what f fills in must not be read then.
func (e *Engine) do(ctx context.Context, f func(*turn) error) error {
	r := &request{do: f, done: make(chan struct{})}
	select {
	case e.others <- r:
	case <-e.done:
		return e.reason()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-r.done:
		return r.err
	case <-e.done:
		return e.answered(r)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask is do for what has an answer.
func ask[T any](ctx context.Context, e *Engine, f func(*turn) (T, error)) (v T, err error) {
	answer := new(T) // not v: see do
	err = e.do(ctx, func(t *turn) (err error) {
		*answer, err = f(t)
		return err
	})
	if err == nil {
		v = *answer
	}
	return v, err
}

// answered returns the answer of a request, if the engine stopped after it.
func (e *Engine) answered(r *request) error {
	select {
	case <-r.done:
		return r.err
	default:
		return e.reason()
	}
}

func (e *Engine) reason() error {
	if e.err != nil {
		return e.err
	}
	return ErrClosed
}

// run owns the state until the engine is closed.
func (e *Engine) run() {
	defer close(e.done)
	err := e.serve()
	if err != nil && !errors.Is(err, ErrClosed) {
		e.cfg.Logger.Error("engine stopped", "error", err)
	}
	e.err = err
	e.abandon()
	e.hub.close()
	if !errors.Is(err, ErrClosed) || errors.Is(err, journal.ErrStale) {
		e.viewer.stop()
		e.shut()
	}
}

func (e *Engine) serve() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := e.stop
	for {
		starts := e.starts
		if e.stopping || e.viewer.behind(e.m) > farBehind {
			starts = nil
		}
		var first *request
		select {
		case first = <-e.others:
		case first = <-starts:
		case <-timer.C:
		case <-e.viewer.wake(e.m):
		case err := <-e.viewer.written:
			if err := e.viewed(err); err != nil {
				return err
			}
		case w := <-e.snapshots.wake():
			e.snapshots.advance(e, w)
		case <-e.lease.Lost():
			return fmt.Errorf("%w: %w", ErrClosed, journal.ErrStale)
		case <-stop:
			select {
			case <-e.kill:
				return e.finish()
			default:
			}
			stop = nil
			e.stopping = true
			e.releaseAll()
		case <-e.kill:
			return e.finish()
		}
		if err := e.take(first, starts); err != nil {
			return err
		}
		if e.stopping && len(e.running) == 0 {
			return e.finish()
		}
		e.viewer.feed(e)
		e.snapshots.moveCold(e)
		e.snapshots.begin(e)
		e.sleep(timer)
	}
}

// sleep sets the timer to the next thing that is due.
func (e *Engine) sleep(timer *time.Timer) {
	wait := min(time.Minute, e.purgeEvery(), e.snapshots.age(e))
	if e.snapshots.retains(e) {
		wait = min(wait, time.Until(e.snapshots.rest))
	}
	if e.snapshots.chill || e.turn.more {
		wait = 0
	}
	if next := e.next(); next < e.clock.last+int64(wait) {
		wait = time.Duration(next - e.clock.wall(time.Now()))
	}
	timer.Reset(max(wait, 0))
}

// next returns when something is due.
func (e *Engine) next() int64 {
	if e.stopping {
		return 1<<63 - 1
	}
	next := min(e.m.Next(), e.schedulesDue())
	if hold := e.openedAt.Add(settle).UnixNano(); len(e.m.Busy()) > 0 && e.clock.last < hold {
		next = min(next, hold)
	}
	return next
}

// take gathers what there is to do, stores what follows, and acts on it.
func (e *Engine) take(first *request, starts chan *request) error {
	t := &e.turn
	if err := e.begin(); err != nil {
		return err
	}
	e.handle(first)
	for n := 0; n < fullTurn && e.entry.Size() < fullEntry; n++ {
		var r *request
		select {
		case r = <-e.others:
		default:
			select {
			case r = <-e.others:
			case r = <-starts:
			default:
			}
		}
		if r == nil {
			break
		}
		e.handle(r)
	}
	if !e.stopping {
		e.due()
		e.dispatch()
	}
	if err := e.health.fatal(); err != nil {
		return err
	}
	if err := e.commit(); err != nil {
		return err
	}
	t.act()
	runtime.Gosched() // those who were answered or called do their work before more is gathered
	return nil
}

// abandon answers everybody who still waits.
func (e *Engine) abandon() {
	for _, r := range e.turn.requests {
		if r.done != nil {
			r.err = e.reason()
			close(r.done)
		}
	}
	for _, list := range e.waiters {
		for _, w := range list {
			close(w)
		}
	}
	for _, a := range e.running {
		a.end(ErrClosed)
	}
}
