package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/enum"
	"github.com/tideover/tideover/limit"
)

// Gate protects one destination that many callers use. While the gate is open,
// every call passes. After GateConfig.Failures failures in a row the gate closes:
// one caller at a time, the prober, passes to find out whether the destination is
// back, and the other callers wait. When a probe succeeds, the waiting callers
// pass, the most urgent first, spread over GateConfig.Release so that they do not
// overload the destination again.
//
// The prober is the most urgent caller that waits when a probe is due; its call
// is a real one. Waiters are ordered as in package limit: by priority class with
// aging, then by deadline, then by arrival. No caller polls.
//
// All methods may be called by any number of goroutines. Make one with [NewGate].
type Gate struct {
	mu          sync.Mutex  // guards gateMachine (except its atomics) and the timer
	gateMachine             // decides; this type adds the lock, the clock, the timer and blocking
	timer       *time.Timer // nil unless a goroutine blocks in Enter
	timerAt     time.Duration
	timerCount  uint64 // timers set so far; the number of the current one
}

// GateState says how a gate treats callers.
type GateState uint8

// The states of a gate. A new gate is GateOpen.
const (
	GateOpen      GateState = iota // every call passes
	GateClosed                     // one prober at a time passes, all other callers wait
	GateReleasing                  // waiting and new callers pass one after the other, by urgency
)

var gateStateNames = [...]string{"open", "closed", "releasing"}

// String returns the state's name.
func (s GateState) String() string { return enum.Name(gateStateNames[:], s, "gate-state") }

// NewGate returns an open gate, or everything that is wrong with the
// configuration.
func NewGate(cfg GateConfig, opts ...GateOption) (*Gate, error) {
	g := &Gate{gateMachine: gateMachine{
		config: cfg.withDefaults(), random: rand.Uint64, turns: map[*limit.Waiter]*Turn{},
	}}
	g.gate = g
	errs := []error{cfg.Validate()}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("option: nil"))
			continue
		}
		o(g)
	}
	if g.random == nil {
		errs = append(errs, errors.New("rand: is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	queue, err := limit.NewConcurrency(g.config.queueConfig())
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	queue.TryAcquire() // the gate holds the only permit: see queueConfig
	g.queue = queue
	return g, nil
}

// Enter blocks until the caller may call the destination. After the call the
// caller must report its outcome with [Pass.Done]. The context's priority
// ([limit.WithPriority]) and deadline decide the place in the queue.
//
// A caller whose deadline comes before the next probe gets a [*ClosedError]: at
// once, or, if the next probe is postponed while it waits, at that moment. The
// error is [limit.ErrQueueFull] if the queue is full, and [limit.ErrShed] for a
// waiter that had to make room for a more urgent caller. If the context ends
// first, the error matches the context's error and its cause.
func (g *Gate) Enter(ctx context.Context) (Pass, error) {
	if ctx.Err() != nil {
		return Pass{}, waitError(ctx, "the gate")
	}
	if w := g.word.Load(); w&shut == 0 {
		return Pass{gate: g, closing: w >> 1}, nil
	}
	return g.enterBlocking(ctx)
}

// shut is the bit of gateMachine.word that is set while callers may have to wait.
const shut = 1

// enterBlocking waits for a pass at a gate that is not open.
func (g *Gate) enterBlocking(ctx context.Context) (Pass, error) {
	now := clock.Now()
	t, err := g.enterOrQueue(now, limit.PriorityFrom(ctx), deadlineOf(ctx, now), make(chan struct{}))
	if err != nil {
		return Pass{}, err
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		if !g.LeaveAt(clock.Now(), t) {
			t.pass.Done(Canceled) // returns a pass that was issued at the same moment; does nothing without one
		}
		return Pass{}, waitError(ctx, "the gate")
	}
	return t.pass, t.err
}

// deadlineOf converts the context's deadline to the origin of now; 0 means none.
func deadlineOf(ctx context.Context, now time.Duration) time.Duration {
	d, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return clock.Later(now, max(time.Until(d), 1)) // 0 would mean none
}

// unlock sets the timer for the next probe or release and unlocks the mutex. Only
// a gate in which goroutines block has a timer: simulators call [Gate.AdvanceAt].
func (g *Gate) unlock(now time.Duration) {
	at, ok := g.nextDue()
	if g.timer != nil && (!ok || at != g.timerAt) {
		g.timer.Stop()
		g.timer = nil
	}
	if ok && g.timer == nil && g.hasBlockedCaller() {
		g.timerAt = at
		g.timerCount++
		n := g.timerCount
		g.timer = time.AfterFunc(at-now, func() { g.onTimer(n) })
	}
	g.mu.Unlock()
}

// hasBlockedCaller reports whether a goroutine waits in Enter. Callers of one gate
// use either Enter or EnterAt, so looking at any one turn is enough.
func (g *Gate) hasBlockedCaller() bool {
	for _, t := range g.turns {
		return t.ready != nil
	}
	return false
}

// onTimer runs when timer number n fires. A timer can fire although it was stopped
// and replaced; then g.timer is the new timer and must stay.
func (g *Gate) onTimer(n uint64) {
	g.mu.Lock()
	now := clock.Now()
	defer g.unlock(now)
	if n == g.timerCount {
		g.timer = nil
	}
	g.advance(now)
}

// Shut closes the gate without a failed call: because a breaker opened, or the
// provider's status page reports an outage. wait is the least time until the
// first probe; 0 leaves it to the schedule. A closed gate stays as it is.
func (g *Gate) Shut(wait time.Duration) { g.ShutAt(clock.Now(), wait) }

// ShutAt is [Gate.Shut] at the time now.
func (g *Gate) ShutAt(now, wait time.Duration) {
	g.mu.Lock()
	defer g.unlock(now)
	if g.state != GateClosed {
		g.close(now, wait)
	}
}

// Open releases the waiting callers, as a successful probe does. It does nothing
// unless the gate is closed.
func (g *Gate) Open() { g.OpenAt(clock.Now()) }

// OpenAt is [Gate.Open] at the time now.
func (g *Gate) OpenAt(now time.Duration) {
	g.mu.Lock()
	defer g.unlock(now)
	if g.state == GateClosed {
		g.startRelease(now)
	}
}

// GateStats is the state of a gate at one moment.
type GateStats struct {
	State    GateState
	Since    time.Duration // time since it closed; 0 if it is not closed
	Failed   int           // failed probes since it closed
	Probing  bool          // a probe is under way
	Next     time.Duration // time until the next probe; 0 if the gate is not closed or a probe is under way
	Expected time.Duration // expected time until recovery (median); 0 without WithRecovery
	Waiting  int
	ByClass  [limit.Classes]int // waiting callers by the priority they came with: index [limit.Priority.Class]

	Closings      uint64        // how often the gate has closed
	LastOutage    time.Duration // how long the gate was closed the last time, without the present closing
	LastPredicted time.Duration // the median duration that was predicted when that closing began; 0 without WithRecovery
}

// Stats returns the current state.
func (g *Gate) Stats() GateStats { return g.StatsAt(clock.Now()) }

// StatsAt is [Gate.Stats] at the time now.
func (g *Gate) StatsAt(now time.Duration) GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queue.Stats()
	s := GateStats{
		State: g.state, Waiting: queue.Waiting, ByClass: queue.ByClass, Closings: g.word.Load() >> 1,
		LastOutage: g.lastOutage, LastPredicted: g.lastGuess,
	}
	if g.state == GateClosed {
		s.Since, s.Failed, s.Probing, s.Expected = now-g.since, g.steps, g.probing, g.expectedRecovery(now)
		if !g.probing {
			s.Next = max(g.due-now, 0)
		}
	}
	return s
}
