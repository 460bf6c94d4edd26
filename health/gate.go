package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// Gate stands before one destination that many callers use. While it is open
// everybody passes. When the destination fails, the gate closes: instead of every
// caller finding out for itself when it is back, one at a time looks, the prober,
// and the others wait. When a probe succeeds they are let through, the most
// urgent first, spread over GateConfig.Release so that they do not knock the
// destination over again.
//
// The prober is the most urgent caller that waits when a probe is due; its call
// is a real one. Waiters are ordered as in package limit: by class, aged, then
// deadline, then arrival. Nobody polls.
//
// All methods may be called by any number of goroutines. Make one with [NewGate].
type Gate struct {
	config   GateConfig // without zeros
	recovery *Recovery  // nil means none
	random   func() uint64

	// All that a call needs while the gate is open: the closings so far, and in
	// the lowest bit whether it is shut.
	word     atomic.Uint64
	failures atomic.Int64 // in a row while it is not closed

	mu    sync.Mutex
	state GateState
	since time.Duration // when it closed
	last  time.Duration // when a call last failed
	steps int           // failed probes
	due   time.Duration // when the next probe, or the next release, is due
	end   time.Duration // when the release is over

	probes  uint64 // so far; the last one's number
	probing bool   // the last one is under way
	began   time.Duration

	line  *limit.Concurrency
	turns map[*limit.Waiter]*Turn

	timer *time.Timer   // the shell's; nil unless somebody blocks
	rings time.Duration // when it does
	set   uint64        // how often it was set

	predicted             time.Duration
	lastOutage, lastGuess time.Duration
}

// GateState is what a gate does with callers.
type GateState uint8

// The states. A new gate is GateOpen.
const (
	GateOpen      GateState = iota // everybody passes
	GateClosed                     // one prober at a time passes, the others wait
	GateReleasing                  // those who waited pass one after the other; so do newcomers
)

var gateStateNames = [...]string{"open", "closed", "releasing"}

// String returns the state's name.
func (s GateState) String() string {
	if int(s) < len(gateStateNames) {
		return gateStateNames[s]
	}
	return fmt.Sprintf("gate-state(%d)", uint8(s))
}

// NewGate returns an open gate, or everything that is wrong with the
// configuration.
func NewGate(cfg GateConfig, opts ...GateOption) (*Gate, error) {
	g := &Gate{config: cfg.withDefaults(), random: rand.Uint64, turns: map[*limit.Waiter]*Turn{}}
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
	line, err := limit.NewConcurrency(g.config.line())
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	line.TryAcquire()
	g.line = line
	return g, nil
}

// Enter returns when the caller may call the destination. Whoever gets a Pass
// ends it with [Pass.Done]. The context's priority ([limit.WithPriority]) and
// deadline decide the place in the queue.
//
// A caller whose deadline comes before the next probe gets a [*ClosedError] at
// once, and so does one that waits as soon as that is certain. When the queue is
// full the error is [limit.ErrQueueFull], and [limit.ErrShed] for a waiter that
// had to make room for a more urgent caller. When the context ends first, the
// error matches its error and its cause.
func (g *Gate) Enter(ctx context.Context) (Pass, error) {
	if ctx.Err() != nil {
		return Pass{}, ended(ctx, "the gate")
	}
	if w := g.word.Load(); w&shut == 0 {
		return Pass{gate: g, closing: w >> 1}, nil
	}
	return g.wait(ctx)
}

// shut is the bit of the gate's word that stops callers.
const shut = 1

// wait is the blocking shell.
func (g *Gate) wait(ctx context.Context) (Pass, error) {
	now := clock.Now()
	t, err := g.enter(now, limit.PriorityFrom(ctx), deadlineOf(ctx, now), make(chan struct{}))
	if err != nil {
		return Pass{}, err
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		if !g.LeaveAt(clock.Now(), t) {
			t.pass.Done(Canceled) // it was let through at the same moment; if not, this does nothing
		}
		return Pass{}, ended(ctx, "the gate")
	}
	return t.pass, t.err
}

// deadlineOf returns the context's deadline on the time line of now.
func deadlineOf(ctx context.Context, now time.Duration) time.Duration {
	d, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return clock.Later(now, max(time.Until(d), 1)) // 0 would mean none
}

// unlock sets the timer for what is due next and releases the lock. Only a gate
// at which goroutines block has a timer: simulators call [Gate.AdvanceAt].
func (g *Gate) unlock(now time.Duration) {
	at, ok := g.next()
	if g.timer != nil && (!ok || at != g.rings) {
		g.timer.Stop()
		g.timer = nil
	}
	if ok && g.timer == nil && g.blocked() {
		g.rings = at
		g.set++
		n := g.set
		g.timer = time.AfterFunc(at-now, func() { g.ring(n) })
	}
	g.mu.Unlock()
}

// blocked reports whether a goroutine waits. A gate is used in one way or the
// other, so any turn can tell.
func (g *Gate) blocked() bool {
	for _, t := range g.turns {
		return t.ready != nil
	}
	return false
}

// ring is what the timer does: a moment's work, on a goroutine that ends with it.
// One that was stopped too late must not clear the timer that came after it.
func (g *Gate) ring(n uint64) {
	g.mu.Lock()
	now := clock.Now()
	defer g.unlock(now)
	if n == g.set {
		g.timer = nil
	}
	g.advance(now)
}

// Shut closes the gate, for news that came by another way than a call: a breaker
// that opened, a page that says the provider is down. wait is how long not to
// probe at least, 0 if nobody said. A closed gate stays as it is.
func (g *Gate) Shut(wait time.Duration) { g.ShutAt(clock.Now(), wait) }

// ShutAt is [Gate.Shut] at the time now.
func (g *Gate) ShutAt(now, wait time.Duration) {
	g.mu.Lock()
	defer g.unlock(now)
	if g.state != GateClosed {
		g.close(now, wait)
	}
}

// Open lets the waiters through as a probe that succeeded does.
func (g *Gate) Open() { g.OpenAt(clock.Now()) }

// OpenAt is [Gate.Open] at the time now.
func (g *Gate) OpenAt(now time.Duration) {
	g.mu.Lock()
	defer g.unlock(now)
	if g.state == GateClosed {
		g.reopen(now)
	}
}

// GateStats is the state of a gate at one moment.
type GateStats struct {
	State    GateState
	Since    time.Duration // how long it has been closed; 0 if it is not
	Failed   int           // probes that failed since
	Probing  bool          // a probe is under way
	Next     time.Duration // how long until the next probe is due; 0 unless it is closed and none is under way
	Expected time.Duration // how long until recovery, by the estimate's median; 0 without one
	Waiting  int
	ByClass  [limit.Classes]int // those who wait by the priority they came with: index [limit.Priority.Class]

	Closings      uint64        // so far
	LastOutage    time.Duration // how long the last one that is over kept it closed
	LastPredicted time.Duration // the estimate's median for it when it began; 0 without an estimate
}

// Stats returns the current state.
func (g *Gate) Stats() GateStats { return g.StatsAt(clock.Now()) }

// StatsAt is [Gate.Stats] at the time now.
func (g *Gate) StatsAt(now time.Duration) GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	line := g.line.Stats()
	s := GateStats{
		State: g.state, Waiting: line.Waiting, ByClass: line.ByClass, Closings: g.word.Load() >> 1,
		LastOutage: g.lastOutage, LastPredicted: g.lastGuess,
	}
	if g.state == GateClosed {
		s.Since, s.Failed, s.Probing, s.Expected = now-g.since, g.steps, g.probing, g.expected(now)
		if !g.probing {
			s.Next = max(g.due-now, 0)
		}
	}
	return s
}
