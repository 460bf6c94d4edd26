package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
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

// turn is one round of the owner: what was asked, what follows, and what is to
// be done about it when it is stored.
type turn struct {
	e        *Engine
	now      int64
	records  int
	requests []*request
	launches []*attempt
	ended    []machine.ID
	stops    []stop
	offset   int  // of the queue that comes first
	more     bool // the entry was full before everything was begun
}

// stop is an attempt that is to be told to end.
type stop struct {
	*attempt
	cause error
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

// begin begins a turn.
func (e *Engine) begin() error {
	now, jumped := e.clock.now()
	e.turn.now = now
	e.turn.open()
	return e.jump(jumped)
}

// refresh looks at the clock again.
func (t *turn) refresh() error {
	now, jumped := t.e.clock.now()
	t.now = now
	return t.e.jump(jumped)
}

// open begins an entry.
func (t *turn) open() {
	boot, _ := t.e.clock.boot()
	t.records = 0
	t.e.entry.Reset(t.now, int64(boot))
}

// jump records that the clock was set, before anything is decided by it.
func (e *Engine) jump(by time.Duration) error {
	if by == 0 {
		return nil
	}
	e.cfg.Logger.Warn("the clock was set; waits go on by the time that passes", "by", by)
	if err := e.turn.record(&machine.Record{Kind: machine.Jumped, At: e.turn.now, Delay: by}); err != nil {
		return err
	}
	if by < 0 {
		e.turn.reschedule()
	}
	return nil
}

// record adds a record to the entry of the turn, and applies it.
func (t *turn) record(rec *machine.Record) error {
	e := t.e
	size := e.entry.Size() + rec.Size()
	if rec.Ends == machine.Dead {
		size += giveUpRoom
	}
	if t.records > 0 && size > journal.MaxEntry {
		if err := e.commit(); err != nil {
			return err
		}
		t.open()
	}
	if t.records == 0 {
		boot, _ := e.clock.boot()
		e.m.Begin(e.seq+1, machine.Header{At: t.now, SinceBoot: int64(boot)})
	}
	t.records++
	e.entry.Add(rec)
	if err := e.m.Apply(rec); err != nil {
		// What was decided from the state can't contradict it.
		return fmt.Errorf("record %s: %w", rec.Kind, err)
	}
	if !rec.Run.IsZero() {
		e.after(t, rec)
	}
	if run, ok := e.m.Run(rec.Run); ok && rec.Ends == machine.Dead {
		return t.giveUp(run)
	}
	return nil
}

// after notes what is to be done about a record when it is stored.
func (e *Engine) after(t *turn, rec *machine.Record) {
	run, ok := e.m.Run(rec.Run)
	if !ok {
		return
	}
	e.hub.note(rec, run)
	switch {
	case run.Closed():
		if len(e.waiters) > 0 {
			t.ended = append(t.ended, rec.Run)
		}
	case run.Outcome != machine.Undecided:
		t.end(run, errRunOver)
	case rec.Kind == machine.Held, rec.Kind == machine.Postponed:
		t.end(run, ErrPaused)
	}
}

// end ends the attempts of a run when that is stored.
func (t *turn) end(run *machine.Run, cause error) {
	for _, a := range t.e.attemptsOf(run) {
		t.stops = append(t.stops, stop{a, cause})
	}
}

// commit stores the entry. It does not return before that, unless it can't ever.
func (e *Engine) commit() error {
	t := &e.turn
	if t.records == 0 {
		return nil
	}
	var id journal.ID
	binary.LittleEndian.PutUint64(id[:8], e.random())
	binary.LittleEndian.PutUint64(id[8:], e.random())
	data := e.entry.Bytes()
	policy := retry.Policy{Attempts: retry.Unlimited}
	policy.Schedule = storePolicy.Schedule
	var state retry.State
	for {
		seq, err := e.lease.Append(context.Background(), e.seq, id, data)
		if err == nil {
			e.seq = seq
			e.snapshots.grown(len(data))
			e.health.storing(nil)
			return nil
		}
		if errors.Is(err, journal.ErrStale) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrTooLarge) {
			return fmt.Errorf("store: %w", err)
		}
		e.health.storing(err)
		state.Attempt++
		d := retry.Decide(policy, state, retry.OutcomeOf(err), retry.Gates{}, e.random())
		state.Prev = d.Prev
		e.cfg.Logger.Error("can't store; nothing goes on until it can", "error", err, "again_in", d.Wait)
		select {
		case <-time.After(d.Wait):
		case <-e.patience.Done():
			return fmt.Errorf("store: %w: %w", context.Cause(e.patience), err)
		case <-e.kill:
			return fmt.Errorf("store: %w", err)
		case <-e.lease.Lost():
			return fmt.Errorf("store: %w", journal.ErrStale)
		}
	}
}

// storePolicy is how the engine waits for its own disk.
var storePolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited").Policy()

// act does what was decided, now that it is stored.
func (t *turn) act() {
	e := t.e
	for i, r := range t.requests {
		if r.done != nil {
			close(r.done)
		}
		t.requests[i] = nil
	}
	t.requests = t.requests[:0]
	for i, a := range t.launches {
		e.attempts.Add(1)
		go a.run()
		t.launches[i] = nil
	}
	t.launches = t.launches[:0]
	for i, s := range t.stops {
		s.end(s.cause)
		t.stops[i] = stop{}
	}
	t.stops = t.stops[:0]
	for _, id := range t.ended {
		for _, w := range e.waiters[id] {
			close(w)
		}
		delete(e.waiters, id)
	}
	t.ended = t.ended[:0]
	e.hub.publish()
}

// handle decides about a request.
func (e *Engine) handle(r *request) {
	if r == nil {
		return
	}
	t := &e.turn
	t.requests = append(t.requests, r)
	switch {
	case r.start != nil:
		r.id, r.err = t.start(r.start, r.def)
	case r.result != nil:
		// The attempt may have ended after the turn began, and its wait must not
		// begin before it ended.
		if r.err = t.refresh(); r.err == nil {
			e.concluded(r.result)
		}
	default:
		r.err = r.do(t)
	}
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
