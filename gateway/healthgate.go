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

// healthGate stands in front of one destination: a breaker that counts how attempts end,
// and a gate that the breaker closes. While it is closed, requests wait, and one at a
// time probes whether the destination is back.
type healthGate struct {
	gate        *health.Gate
	breaker     *breaker.Breaker
	recovery    *health.Recovery
	openFor     time.Duration
	history     *history
	subscribers *subscribers
	changed     func(breaker.Event, health.GateStats) // called for each change of the breaker

	askedUntil     atomic.Int64 // reading of the clock up to which the server asks for no requests
	isOpen         atomic.Bool  // the gate is open: all that nearly all requests need to know
	probeRequested atomic.Bool  // an operator wants the next probe at once
	mu             sync.Mutex   // held while the gate is closed, so that its events come in order
}

func newHealthGate(s *Spec, name string, r *health.Recovery, h *history, w *subscribers, changed func(breaker.Event, health.GateStats)) (*healthGate, error) {
	g := &healthGate{recovery: r, openFor: s.OpenFor, history: h, subscribers: w, changed: changed}
	var err error
	// Only the breaker closes it.
	if g.gate, err = health.NewGate(health.GateConfig{Failures: math.MaxInt, Queue: s.Queue}, health.WithRecovery(r)); err != nil {
		return nil, err
	}
	g.breaker, err = breaker.New(s.Breaker, breaker.WithName(name), breaker.WithObserver(g.observe))
	return g, err
}

func (g *healthGate) observe(e breaker.Event) {
	if e.To == breaker.Open {
		g.shut(string(e.Cause))
	}
	g.changed(e, g.gate.Stats())
}

// askedFor records that the server asks for no requests for so long.
func (g *healthGate) askedFor(wait time.Duration) {
	if wait > 0 {
		g.askedUntil.Store(int64(clock.Later(clock.Now(), wait)))
	}
}

// shut closes the gate.
func (g *healthGate) shut(cause string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.gate.Stats()
	if before.State == health.GateClosed {
		return
	}
	g.isOpen.Store(false)
	g.probeRequested.Store(false)
	g.gate.Shut(max(g.openFor, time.Duration(g.askedUntil.Load())-clock.Now()))
	s := g.gate.Stats()
	g.history.began(time.Now(), cause, g.expected(&s), s.Next)
	g.subscribers.wake(closedAgain)
}

// expected returns the predicted time until recovery; 0 if no outage was seen before.
func (g *healthGate) expected(s *health.GateStats) time.Duration {
	if g.learned() == 0 {
		return 0
	}
	return s.Expected
}

// learned returns how many outages the prediction is based on.
func (g *healthGate) learned() float64 { return g.recovery.Predict(0).Outages }

// done reports how a call ended.
func (g *healthGate) done(pass health.Pass, o health.Outcome) {
	pass.Done(o)
	if !pass.Probe() || o == health.Succeeded {
		return
	}
	g.history.reported(time.Now(), o.Result == breaker.Failure, g.gate.Stats().Next)
}

// probeNow lets one request probe the destination at once: the most urgent of those that
// wait, or the next one.
func (g *healthGate) probeNow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.gate.Stats()
	if s.State != health.GateClosed || s.Probing {
		return
	}
	g.gate.AdvanceAt(clock.Later(clock.Now(), s.Next)) // to the gate it is as late as it has to be
	g.probeRequested.Store(!g.gate.Stats().Probing)
}

// reopened records that the destination is back.
func (g *healthGate) reopened() (Outage, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gate.Stats().State == health.GateClosed {
		return Outage{}, false
	}
	o, was := g.history.ended(time.Now())
	if was {
		g.subscribers.wake(reopened)
	}
	return o, was
}

// gateState is the gate as a new request finds it.
type gateState uint8

const (
	gateOpen gateState = iota
	gateClosed
	gateReleasing // requests that waited pass one after the other, new ones behind them
)

// state returns the gate as a new request would find it, and if it is closed, for how
// long: a probe that is due lets the request pass. 0 means that a probe is under way,
// which may end any moment.
func (g *healthGate) state() (gateState, time.Duration) {
	if g.isOpen.Load() {
		return gateOpen, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.gate.Stats()
	g.isOpen.Store(s.State == health.GateOpen) // only we close it, with the lock held
	switch {
	case s.State == health.GateReleasing:
		return gateReleasing, 0
	case s.State == health.GateClosed && (s.Probing || s.Next > 0 && !g.probeRequested.Load()):
		return gateClosed, s.Next
	}
	return gateOpen, 0
}

// try passes if that needs no wait: the gate is open, or a probe is due, which is then
// this request.
func (g *healthGate) try(ctx context.Context) (pass health.Pass, found gateState, next time.Duration) {
	if g.isOpen.Load() {
		if pass, err := g.gate.Enter(noWait{}); err == nil {
			return pass, gateOpen, 0
		}
	}
	if found, next = g.state(); found != gateOpen {
		return pass, found, next
	}
	early := time.Duration(0)
	if g.probeRequested.CompareAndSwap(true, false) {
		early = g.gate.Stats().Next
	}
	now := clock.Later(clock.Now(), early)
	turn, err := g.gate.EnterAt(now, limit.PriorityFrom(ctx), 0)
	if err != nil { // a queue: it was closed since we looked
		return pass, gateClosed, 0
	}
	pass, over, _ := turn.Result()
	if !over {
		if g.gate.LeaveAt(clock.Now(), turn) {
			return pass, gateClosed, g.gate.Stats().Next
		}
		pass, _, _ = turn.Result() // let through at the same moment
	}
	if pass.Probe() {
		g.history.probed(time.Now())
	}
	return pass, gateOpen, 0
}

// noWait is the context of a request that does not wait.
type noWait struct{}

func (noWait) Deadline() (time.Time, bool) { return time.Time{}, false }
func (noWait) Done() <-chan struct{}       { return noTime }
func (noWait) Err() error                  { return nil }
func (noWait) Value(any) any               { return nil }

var noTime = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait passes when it is the request's turn.
func (g *healthGate) wait(ctx context.Context) (health.Pass, error) {
	pass, err := g.gate.Enter(ctx)
	if err == nil && pass.Probe() {
		g.history.probed(time.Now())
	}
	return pass, err
}

// gateEvent is a change that may wake requests that wait.
type gateEvent uint8

const (
	reopened    gateEvent = iota // for requests that wait for another provider
	closedAgain                  // for requests that wait here, and have another provider
	overridden                   // for all
)

// subscribers are the requests that wait for a change.
type subscribers struct {
	mu  sync.Mutex
	all map[*subscriber]struct{}
}

// subscriber is one of them.
type subscriber struct {
	here    bool // waits at this gate
	choices bool // has another provider
	wake    func()
}

// add returns the function that removes the subscriber.
func (s *subscribers) add(one *subscriber) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*subscriber]struct{}{}
	}
	s.all[one] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, one)
	}
}

func (s *subscribers) wake(n gateEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.all {
		if n == overridden || n == reopened && !one.here || n == closedAgain && one.here && one.choices {
			one.wake()
		}
	}
}
