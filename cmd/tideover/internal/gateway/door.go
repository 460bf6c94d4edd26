package gateway

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// door is what stands before one destination: a breaker that counts what becomes
// of attempts, and a gate that it closes, at which everybody waits while one at a
// time looks whether the destination is back.
type door struct {
	gate     *health.Gate
	breaker  *breaker.Breaker
	recovery *health.Recovery
	openFor  time.Duration
	history  *history
	watchers *watchers
	changed  func(breaker.Event, health.GateStats) // told of each change of the breaker

	asked atomic.Int64 // reading of the clock up to which the server asked to be left alone
	calm  atomic.Bool  // the gate is open: all that nearly all callers need to know
	hurry atomic.Bool  // somebody wants the next probe to be made at once
	mu    sync.Mutex   // held while the gate is closed, so that its news come in order
}

func newDoor(s *Spec, name string, r *health.Recovery, h *history, w *watchers, changed func(breaker.Event, health.GateStats)) (*door, error) {
	d := &door{recovery: r, openFor: s.OpenFor, history: h, watchers: w, changed: changed}
	var err error
	// Only the breaker closes it.
	if d.gate, err = health.NewGate(health.GateConfig{Failures: math.MaxInt, Queue: s.Queue}, health.WithRecovery(r)); err != nil {
		return nil, err
	}
	d.breaker, err = breaker.New(s.Breaker, breaker.WithName(name), breaker.WithObserver(d.observe))
	return d, err
}

func (d *door) observe(e breaker.Event) {
	if e.To == breaker.Open {
		d.shut(string(e.Cause))
	}
	d.changed(e, d.gate.Stats())
}

// askedFor notes that the server wants to be left alone for so long.
func (d *door) askedFor(wait time.Duration) {
	if wait > 0 {
		d.asked.Store(int64(clock.Later(clock.Now(), wait)))
	}
}

// shut closes the gate.
func (d *door) shut(cause string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.gate.Stats()
	if before.State == health.GateClosed {
		return
	}
	d.calm.Store(false)
	d.hurry.Store(false)
	d.gate.Shut(max(d.openFor, time.Duration(d.asked.Load())-clock.Now()))
	s := d.gate.Stats()
	d.history.began(time.Now(), cause, d.expected(&s), s.Next)
	d.watchers.wake(shutAgain)
}

// expected returns how long it will be until recovery, by what was learned; 0 when
// no outage was seen before: a guess is none that anybody should be shown.
func (d *door) expected(s *health.GateStats) time.Duration {
	if d.learned() == 0 {
		return 0
	}
	return s.Expected
}

// learned returns how many outages an expectation rests on.
func (d *door) learned() float64 { return d.recovery.Predict(0).Outages }

// done reports what became of a call.
func (d *door) done(pass health.Pass, o health.Outcome) {
	pass.Done(o)
	if !pass.Probe() || o == health.Succeeded {
		return
	}
	d.history.reported(time.Now(), o.Result == breaker.Failure, d.gate.Stats().Next)
}

// probeNow lets one caller look whether the destination is back, however recently
// somebody did: the most urgent of those who wait, or the next that comes.
func (d *door) probeNow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.gate.Stats()
	if s.State != health.GateClosed || s.Probing {
		return
	}
	d.gate.AdvanceAt(clock.Later(clock.Now(), s.Next)) // to the gate it is as late as it has to be
	d.hurry.Store(!d.gate.Stats().Probing)
}

// reopened notes that the destination is back.
func (d *door) reopened() (Outage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate.Stats().State == health.GateClosed {
		return Outage{}, false
	}
	o, was := d.history.ended(time.Now())
	if was {
		d.watchers.wake(reopened)
	}
	return o, was
}

// standing is what a newcomer finds.
type standing uint8

const (
	passes standing = iota
	closed
	filing // those who waited are let through one after the other, newcomers behind them
)

// look returns what a newcomer would find, and if that is closed, for how long
// nobody passes; a probe that is due makes the newcomer pass. 0 means that a probe
// is under way, which may end any moment.
func (d *door) look() (standing, time.Duration) {
	if d.calm.Load() {
		return passes, 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.gate.Stats()
	d.calm.Store(s.State == health.GateOpen) // only we close it, with the lock held
	switch {
	case s.State == health.GateReleasing:
		return filing, 0
	case s.State == health.GateClosed && (s.Probing || s.Next > 0 && !d.hurry.Load()):
		return closed, s.Next
	}
	return passes, 0
}

// try passes if that needs no waiting: the gate is open, or it is time for a
// probe, which is then the caller's.
func (d *door) try(ctx context.Context) (pass health.Pass, found standing, next time.Duration) {
	if d.calm.Load() {
		if pass, err := d.gate.Enter(impatient{}); err == nil {
			return pass, passes, 0
		}
	}
	if found, next = d.look(); found != passes {
		return pass, found, next
	}
	early := time.Duration(0)
	if d.hurry.CompareAndSwap(true, false) {
		early = d.gate.Stats().Next
	}
	now := clock.Later(clock.Now(), early)
	turn, err := d.gate.EnterAt(now, limit.PriorityFrom(ctx), 0)
	if err != nil { // a queue: it was closed since we looked
		return pass, closed, 0
	}
	pass, over, _ := turn.Result()
	if !over {
		if d.gate.LeaveAt(clock.Now(), turn) {
			return pass, closed, d.gate.Stats().Next
		}
		pass, _, _ = turn.Result() // let through at the same moment
	}
	if pass.Probe() {
		d.history.probed(time.Now())
	}
	return pass, passes, 0
}

// impatient is the context of a caller that waits for nothing.
type impatient struct{}

func (impatient) Deadline() (time.Time, bool) { return time.Time{}, false }
func (impatient) Done() <-chan struct{}       { return noTime }
func (impatient) Err() error                  { return nil }
func (impatient) Value(any) any               { return nil }

var noTime = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait passes when it is the caller's turn.
func (d *door) wait(ctx context.Context) (health.Pass, error) {
	pass, err := d.gate.Enter(ctx)
	if err == nil && pass.Probe() {
		d.history.probed(time.Now())
	}
	return pass, err
}

// news is what may be of interest to those who wait.
type news uint8

const (
	reopened  news = iota // to those who wait elsewhere
	shutAgain             // to those who wait here, and can go elsewhere
	byHand                // to all
)

// watchers are those who wait for a change.
type watchers struct {
	mu  sync.Mutex
	all map[*watcher]struct{}
}

// watcher is one of them.
type watcher struct {
	here    bool // waits at this very gate
	choices bool // can go elsewhere
	wake    func()
}

// add returns what takes the watcher out again.
func (w *watchers) add(one *watcher) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*watcher]struct{}{}
	}
	w.all[one] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, one)
	}
}

func (w *watchers) wake(n news) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		if n == byHand || n == reopened && !one.here || n == shutAgain && one.here && one.choices {
			one.wake()
		}
	}
}
