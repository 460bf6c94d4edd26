package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/retry"
)

// Config is what an actor is made of.
type Config struct {
	Member    int
	Acceptors int
	Log       []paxos.Entry // what was decided before it joined, by [Actor.Log] of whoever let it in
	Contend   contend.Config
	Random    func() uint64     // draws the waits; nil for one of its own
	Observe   func(retry.Event) // sees every event, on the actor's goroutine; nil for nobody
}

// Actor is a device's part of the group. One goroutine owns all its state and
// never blocks: a wait is a timer, so that the actor answers questions and stops
// at once whatever it waits for.
type Actor struct {
	config Config
	inbox  chan func()
	quit   chan struct{} // closed by Stop
	gone   chan struct{} // closed when the goroutine has ended
	once   sync.Once

	// What follows belongs to the goroutine.
	paxos *paxos.Proposer
	wire  wire
	near  []bool      // which acceptors are connected
	queue []*proposal // the first is the one under way
	seq   int         // proposals so far
	pace  contend.Pace
	timer *time.Timer
	due   func() // what the timer is for
	poll  *time.Ticker
	asked int // the acceptor that was asked last what there is to learn
}

// pollEvery is how often an actor asks an acceptor what there is to learn: one
// that only listens can miss a decision, and nobody would notice.
const pollEvery = time.Second

// Status is what an actor says of itself.
type Status struct {
	Epoch   int    // the current one
	Doing   string // idle, preparing, accepting or waiting
	Attempt int    // of the proposal under way
	Near    int    // acceptors that are connected
	Log     []string
}

// Why a proposal may end or lose without a winner.
var (
	errStopped  = errors.New("the actor was stopped")
	errNoQuorum = errors.New("too few acceptors answered")
	errTooLate  = errors.New("the acceptors have forgotten what comes next in the log; join anew, with the log of another device")
)

// start starts an actor. open returns its wire, which may speak to it at once.
func start(c Config, open func(listener) wire) (*Actor, error) {
	p, err := paxos.NewProposer(c.Member, c.Acceptors, slices.Clone(c.Log)...)
	if err = errors.Join(err, checked(c.Contend)); err != nil {
		return nil, err
	}
	a := &Actor{
		config: c, paxos: p, near: make([]bool, c.Acceptors),
		inbox: make(chan func(), 64), quit: make(chan struct{}), gone: make(chan struct{}),
		timer: time.NewTimer(time.Hour), poll: time.NewTicker(pollEvery),
	}
	if a.config.Random == nil {
		a.config.Random = rand.Uint64
	}
	a.timer.Stop()
	a.wire = open(a)
	go a.loop()
	return a, nil
}

func (a *Actor) loop() {
	defer close(a.gone)
	defer a.poll.Stop()
	for {
		select {
		case <-a.quit:
			a.end()
			return
		case do := <-a.inbox:
			do()
		case <-a.timer.C:
			a.due()
		case <-a.poll.C:
			a.asked = (a.asked + 1) % a.config.Acceptors
			a.learn(a.asked)
		}
	}
}

// end answers everybody who waits.
func (a *Actor) end() {
	if len(a.queue) == 0 {
		return
	}
	for _, p := range a.queue[1:] {
		p.done <- result{err: errStopped}
	}
	a.queue = a.queue[:1]
	a.finish(a.queue[0], result{err: a.unsure(errStopped)})
}

// Stop ends the actor and returns when nothing of it runs any more.
func (a *Actor) Stop() {
	a.once.Do(func() { close(a.quit) })
	<-a.gone
	a.wire.close()
}

// post lets the actor's goroutine do something. It reports false when there is
// none any more.
func (a *Actor) post(do func()) bool {
	select {
	case a.inbox <- do:
		return true
	case <-a.gone:
		return false
	}
}

// Status returns how the actor is, also while it waits.
func (a *Actor) Status() (s Status, err error) {
	answer := make(chan Status, 1)
	if !a.post(func() { answer <- a.status() }) {
		return s, errStopped
	}
	select {
	case s = <-answer:
		return s, nil
	case <-a.gone:
		return s, errStopped
	}
}

// Log returns what was decided so far, for a device that joins.
func (a *Actor) Log() ([]paxos.Entry, error) {
	answer := make(chan []paxos.Entry, 1)
	if !a.post(func() { answer <- slices.Clone(a.paxos.Log()) }) {
		return nil, errStopped
	}
	select {
	case log := <-answer:
		return log, nil
	case <-a.gone:
		return nil, errStopped
	}
}

func (a *Actor) status() Status {
	s := Status{Epoch: a.paxos.Epoch(), Doing: a.paxos.Phase().String()}
	if len(a.queue) > 0 {
		s.Attempt = a.queue[0].state.Attempt
		if a.paxos.Phase() == paxos.Idle {
			s.Doing = "waiting"
		}
	}
	for _, near := range a.near {
		if near {
			s.Near++
		}
	}
	for _, e := range a.paxos.Log() {
		s.Log = append(s.Log, e.Value.Data)
	}
	return s
}

// propose queues the proposal and waits for its end.
func (a *Actor) propose(ctx context.Context, p *proposal) (result, error) {
	p.done = make(chan result, 1)
	if !a.post(func() { a.enqueue(p) }) {
		return result{}, errStopped
	}
	select {
	case r := <-p.done:
		return r, r.err
	case <-a.gone:
	case <-ctx.Done():
		a.post(func() { a.withdraw(p, context.Cause(ctx)) })
	}
	select {
	case r := <-p.done:
		return r, r.err
	case <-a.gone:
	}
	select { // the end may have come with the answer
	case r := <-p.done:
		return r, r.err
	default:
		return result{}, errStopped
	}
}

// hear implements listener.
func (a *Actor) hear(m paxos.Message) {
	a.post(func() { a.drive(func(out *paxos.Output) { a.paxos.Receive(m, out) }) })
}

// connected implements listener. Whoever was away asks what it missed.
func (a *Actor) connected(acceptor int) {
	a.post(func() {
		a.near[acceptor] = true
		a.learn(acceptor)
	})
}

func (a *Actor) learn(acceptor int) {
	a.drive(func(out *paxos.Output) { a.paxos.Learn(acceptor, out) })
}

// disconnected implements listener.
func (a *Actor) disconnected(acceptor int) {
	a.post(func() {
		a.near[acceptor] = false
		a.drive(func(out *paxos.Output) { a.paxos.Unreachable(acceptor, out) })
	})
}

// drive lets the machine take a step, and does what it wants done.
func (a *Actor) drive(step func(*paxos.Output)) {
	var out paxos.Output
	step(&out)
	var missed []int
	for _, m := range out.Send {
		if !a.wire.send(m) && (m.Kind == paxos.Prepare || m.Kind == paxos.Accept) {
			missed = append(missed, m.To)
		}
	}
	for _, e := range out.Events {
		a.happened(e)
	}
	for _, acceptor := range missed {
		a.drive(func(out *paxos.Output) { a.paxos.Unreachable(acceptor, out) })
	}
}

// after sets the one timer.
func (a *Actor) after(wait time.Duration, do func()) {
	a.due = do
	a.timer.Reset(wait)
}
