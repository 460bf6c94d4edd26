package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// Breaker is a circuit breaker. All its methods may be called by any number of
// goroutines. Make one with [New].
type Breaker struct {
	// The fields that a call reads in the closed state. They do not change in
	// that state, so every processor can cache them.
	closed       atomic.Pointer[window] // nil unless the state lets all calls through
	clockOnAllow bool                   // Allow must read the clock
	clockOnDone  bool                   // Done must read the clock for a success
	config       Config                 // with defaults filled in
	options
	_ [64]byte // separates the fields above from the lock's cache line

	mu        sync.Mutex
	state     State // as the last call left it: an open time that is over shows only in StateAt
	openUntil time.Duration
	openings  int           // number of openings since the breaker was last closed
	openFor   time.Duration // length of the last opening
	probes    probes
	events    eventQueue
}

// New returns a closed breaker, or an error that lists every problem of the
// configuration and the options.
func New(c Config, opts ...Option) (*Breaker, error) {
	b := &Breaker{config: c.withDefaults(), options: options{random: rand.Uint64}}
	missing := error(nil)
	for _, o := range opts {
		if o == nil {
			missing = errors.New("option: nil")
			continue
		}
		o(&b.options)
	}
	if err := errors.Join(c.Validate(), b.validate(), missing); err != nil {
		return nil, fmt.Errorf("%s: %w", describe(b.name), err)
	}
	b.clockOnAllow = c.SlowCall > 0
	b.clockOnDone = b.clockOnAllow || c.WindowCalls == 0
	b.probes.limit, b.probes.timeout = b.config.Probes, b.config.ProbeTimeout
	b.closed.Store(newWindow(b.config))
	return b, nil
}

// Must is [New] for package variables and tests: it panics with the error that New
// would return.
func Must(c Config, opts ...Option) *Breaker {
	b, err := New(c, opts...)
	if err != nil {
		panic(err)
	}
	return b
}

// Name returns the name given by [WithName].
func (b *Breaker) Name() string { return b.name }

// Allow returns a permit for one call. The caller must report the result with
// [Permit.Done]. If the call may not be made, the error is an [*OpenError].
// Allow never blocks.
func (b *Breaker) Allow() (Permit, error) {
	if w := b.closed.Load(); w != nil && !b.clockOnAllow {
		return Permit{breaker: b, window: w}, nil
	}
	return b.allowNow()
}

// allowNow is the part of Allow that reads the clock. It is a separate function
// so that Allow can be inlined.
func (b *Breaker) allowNow() (Permit, error) { return b.AllowAt(clock.Now()) }

// OpenFor returns how long calls will still be rejected: 0 if one could pass
// now, and [math.MaxInt64] if the breaker is forced open.
//
// If a half-open breaker has all its probes in flight, OpenFor returns the time
// until the first of them expires. A call may pass sooner, when one of the
// probes reports.
func (b *Breaker) OpenFor() time.Duration {
	if b.closed.Load() != nil {
		return 0
	}
	return b.OpenForAt(clock.Now())
}

// ShutFor returns how long calls will be rejected for certain. It is
// [Breaker.OpenFor], except for a half-open breaker, for which it is 0: its
// probes may report at any moment. A retry loop can use it to decide whether to
// wait for the next attempt.
func (b *Breaker) ShutFor() time.Duration {
	if b.closed.Load() != nil {
		return 0
	}
	return b.ShutForAt(clock.Now())
}

// State returns the state in which a call would find the breaker now. It
// changes nothing: when the open time is over it returns HalfOpen, although the
// event for that change comes with the first probe.
func (b *Breaker) State() State {
	if b.closed.Load() == nil {
		return b.StateAt(clock.Now())
	}
	return b.StateAt(0) // Closed and ForcedClosed do not end with time
}

// Counts returns the results that count now.
func (b *Breaker) Counts() Counts { return b.CountsAt(clock.Now()) }

// Force keeps the breaker in the state ForcedOpen or ForcedClosed until
// [Breaker.Reset]. No other state can be forced.
func (b *Breaker) Force(s State) error { return b.ForceAt(clock.Now(), s) }

// Reset closes the breaker from any state, with all counts at zero and its
// rules in force. It emits an event unless the breaker was Closed already.
func (b *Breaker) Reset() { b.ResetAt(clock.Now()) }
