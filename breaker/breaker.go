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
	// What a call in the closed state reads. Nothing here changes then, so that
	// every processor may keep its own copy.
	closed    atomic.Pointer[window] // nil unless every call passes
	timeStart bool                   // Allow needs the clock
	timeEnd   bool                   // Done of a success needs the clock
	config    Config                 // without zeros
	options
	_ [64]byte // keeps the lock's traffic away from the above

	mu       sync.Mutex
	state    State // as the last call found it
	until    time.Duration
	openings int           // in a row, without closing in between
	openFor  time.Duration // how long the last of them was meant to last
	probes   probes
	mail     mail
}

// New returns a closed breaker, or everything that is wrong with the
// configuration and the options.
func New(c Config, opts ...Option) (*Breaker, error) {
	b := &Breaker{config: c.filled(), options: options{random: rand.Uint64}}
	missing := error(nil)
	for _, o := range opts {
		if o == nil {
			missing = errors.New("option: nil")
			continue
		}
		o(&b.options)
	}
	if err := errors.Join(c.Validate(), b.validate(), missing); err != nil {
		return nil, fmt.Errorf("%s: %w", title(b.name), err)
	}
	b.timeStart = c.SlowCall > 0
	b.timeEnd = b.timeStart || c.WindowCalls == 0
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

// Allow asks to make a call. The caller reports with [Permit.Done] what became
// of it. If the call may not be made, the error is an [*OpenError]. Allow never
// waits.
func (b *Breaker) Allow() (Permit, error) {
	if w := b.closed.Load(); w != nil && !b.timeStart {
		return Permit{breaker: b, window: w}, nil
	}
	return b.allowNow()
}

func (b *Breaker) allowNow() (Permit, error) { return b.AllowAt(clock.Now()) }

// OpenFor returns how long calls will still be refused: 0 when one could pass
// now, and [math.MaxInt64] when the breaker is forced open.
//
// When a half-open breaker has all its probes under way, it is the time until
// the first of them expires. Any of their reports can end the wait before that.
func (b *Breaker) OpenFor() time.Duration {
	if b.closed.Load() != nil {
		return 0
	}
	return b.OpenForAt(clock.Now())
}

// ShutFor returns how long calls will be refused for certain. It is
// [Breaker.OpenFor] but for a half-open breaker, for which it is 0: its probes
// may come back at any moment. A runner asks it before it waits for the next attempt.
func (b *Breaker) ShutFor() time.Duration {
	if b.closed.Load() != nil {
		return 0
	}
	return b.ShutForAt(clock.Now())
}

// State returns the state as a call would find it now. It changes nothing: when
// the open time is over it says HalfOpen, though the event for that comes with
// the first probe.
func (b *Breaker) State() State {
	if b.closed.Load() == nil {
		return b.StateAt(clock.Now())
	}
	return b.StateAt(0) // these states do not end with time
}

// Counts returns the results that count at this moment.
func (b *Breaker) Counts() Counts { return b.CountsAt(clock.Now()) }

// Force holds the breaker in the state ForcedOpen or ForcedClosed until
// [Breaker.Reset]. No other state can be forced.
func (b *Breaker) Force(s State) error { return b.ForceAt(clock.Now(), s) }

// Reset makes the breaker as good as new from any state: closed and under its rules,
// with nothing counted. Unless it was closed already, there
// is an event.
func (b *Breaker) Reset() { b.ResetAt(clock.Now()) }
