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

// Config configures an actor.
type Config struct {
	Member    int
	Acceptors int
	Log       []paxos.Entry // what was decided before it joined, from [Actor.Log] of another device
	Contend   contend.Config
	Random    func() uint64     // draws the waits; nil means its own source
	Observe   func(retry.Event) // called with every event, on the actor's goroutine; may be nil
}

// Actor is a device of the group. One goroutine owns all its state and never
// blocks: a wait is a timer, so that the actor answers requests and stops at
// once while it waits.
type Actor struct {
	config Config
	inbox  chan func()
	quit   chan struct{} // closed by Stop
	gone   chan struct{} // closed when the goroutine has ended
	once   sync.Once

	// The fields below belong to the goroutine.
	paxos *paxos.Proposer
	wire  wire
	near  []bool      // which acceptors are connected
	queue []*proposal // the first is in progress
	seq   int         // proposals so far
	pace  contend.Pace
	alarm alarm
	poll  *time.Ticker
	asked int // the acceptor that the actor asked last for decisions
}

// pollEvery is how often an actor asks an acceptor for decisions: an actor that
// only listens can miss one without noticing.
const pollEvery = time.Second

// Status is the state of an actor.
type Status struct {
	Epoch   int    // the current one
	Doing   string // idle, preparing, accepting or waiting
	Attempt int    // of the proposal in progress
	Near    int    // acceptors that are connected
	Log     []string
}

// The errors of proposals that end or lose an attempt although no other value has
// won.
var (
	errStopped  = errors.New("the actor was stopped")
	errNoQuorum = errors.New("too few acceptors answered")
	errTooLate  = errors.New("the acceptors have forgotten the next decision: join again, with the log of another device")
)

// start starts an actor. open returns the wire of the actor; the wire may call the
// actor immediately.
func start(c Config, open func(listener) wire) (*Actor, error) {
	p, err := paxos.NewProposer(c.Member, c.Acceptors, slices.Clone(c.Log)...)
	if err = errors.Join(err, validateContend(c.Contend)); err != nil {
		return nil, err
	}
	a := &Actor{
		config: c, paxos: p, near: make([]bool, c.Acceptors),
		inbox: make(chan func(), 64), quit: make(chan struct{}), gone: make(chan struct{}),
		alarm: newAlarm(), poll: time.NewTicker(pollEvery),
	}
	if a.config.Random == nil {
		a.config.Random = rand.Uint64
	}
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
			a.endProposals()
			return
		case do := <-a.inbox:
			do()
		case <-a.alarm.timer.C:
			a.alarm.due()
		case <-a.poll.C:
			a.asked = (a.asked + 1) % a.config.Acceptors
			a.learn(a.asked)
		}
	}
}

// endProposals ends all proposals.
func (a *Actor) endProposals() {
	if len(a.queue) == 0 {
		return
	}
	for _, p := range a.queue[1:] {
		p.done <- result{err: errStopped}
	}
	a.queue = a.queue[:1]
	a.finish(a.queue[0], result{err: unsure(a.paxos, errStopped)})
}

// Stop ends the actor and returns when all its goroutines have ended.
func (a *Actor) Stop() {
	a.once.Do(func() { close(a.quit) })
	<-a.gone
	a.wire.close()
}

// post runs a function on the actor's goroutine. It returns false if the actor
// has ended.
func (a *Actor) post(do func()) bool {
	select {
	case a.inbox <- do:
		return true
	case <-a.gone:
		return false
	}
}

// query runs a function on the actor's goroutine and returns its result. It fails if the
// actor has ended.
func query[T any](a *Actor, get func() T) (t T, err error) {
	answer := make(chan T, 1)
	if !a.post(func() { answer <- get() }) {
		return t, errStopped
	}
	select {
	case t = <-answer:
		return t, nil
	case <-a.gone:
		return t, errStopped
	}
}

// Status returns the state of the actor, also while it waits.
func (a *Actor) Status() (Status, error) { return query(a, a.status) }

// Log returns the decisions so far, for a device that joins.
func (a *Actor) Log() ([]paxos.Entry, error) {
	return query(a, func() []paxos.Entry { return slices.Clone(a.paxos.Log()) })
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

// propose queues the proposal of a text and waits for its end.
func (a *Actor) propose(ctx context.Context, text string, p *proposal) (result, error) {
	if err := checkText(text); err != nil {
		return result{}, err
	}
	p.done = make(chan result, 1)
	if !a.post(func() { a.enqueue(p) }) {
		return result{}, errStopped
	}
	defer context.AfterFunc(ctx, func() { a.post(func() { a.withdraw(p, context.Cause(ctx)) }) })()
	select {
	case r := <-p.done:
		return r, r.err
	case <-a.gone:
	}
	select { // the result may have come together with the end of the actor
	case r := <-p.done:
		return r, r.err
	default:
		return result{}, errStopped
	}
}

// hear implements listener.
func (a *Actor) hear(m paxos.Message) {
	a.post(func() { a.step(func(out *paxos.Output) { a.paxos.Receive(m, out) }) })
}

// connected implements listener. A device that was disconnected asks for the
// decisions that it missed.
func (a *Actor) connected(acceptor int) {
	a.post(func() {
		a.near[acceptor] = true
		a.learn(acceptor)
	})
}

func (a *Actor) learn(acceptor int) {
	a.step(func(out *paxos.Output) { a.paxos.Learn(acceptor, out) })
}

// disconnected implements listener.
func (a *Actor) disconnected(acceptor int) {
	a.post(func() {
		a.near[acceptor] = false
		a.step(func(out *paxos.Output) { a.paxos.Unreachable(acceptor, out) })
	})
}

// step runs a step of the state machine, and handles its output.
func (a *Actor) step(step func(*paxos.Output)) {
	var out paxos.Output
	step(&out)
	var missed []int
	for _, m := range out.Send {
		if !a.wire.send(m) && (m.Kind == paxos.Prepare || m.Kind == paxos.Accept) {
			missed = append(missed, m.To)
		}
	}
	for _, e := range out.Events {
		a.handleEvent(e)
	}
	for _, acceptor := range missed {
		a.step(func(out *paxos.Output) { a.paxos.Unreachable(acceptor, out) })
	}
}

// alarm is the one timer of an actor.
type alarm struct {
	timer *time.Timer
	due   func() // to call when the timer fires
}

func newAlarm() alarm {
	a := alarm{timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

func (a *alarm) set(wait time.Duration, due func()) {
	a.due = due
	a.timer.Reset(wait)
}
