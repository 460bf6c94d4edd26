package breaker

import (
	"fmt"
	"time"
)

// The methods of this file, and [Permit.DoneAt], take the time as an argument. See
// "Time" in the package documentation.

// AllowAt is [Breaker.Allow] at the time now. Report the result with
// [Permit.DoneAt].
func (b *Breaker) AllowAt(now time.Duration) (Permit, error) {
	if w := b.closed.Load(); w != nil {
		return Permit{breaker: b, window: w, start: now}, nil
	}
	return b.admit(now)
}

// OpenForAt is [Breaker.OpenFor] at the time now.
func (b *Breaker) OpenForAt(now time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusedFor(now)
}

// ShutForAt is [Breaker.ShutFor] at the time now.
func (b *Breaker) ShutForAt(now time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == HalfOpen {
		return 0
	}
	return b.refusedFor(now)
}

// StateAt is [Breaker.State] at the time now.
func (b *Breaker) StateAt(now time.Duration) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openTimeOver(now) {
		return HalfOpen
	}
	return b.state
}

// CountsAt is [Breaker.Counts] at the time now.
func (b *Breaker) CountsAt(now time.Duration) Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts(now)
}

// ForceAt is [Breaker.Force] at the time now.
func (b *Breaker) ForceAt(now time.Duration, s State) error {
	if s != ForcedOpen && s != ForcedClosed {
		return fmt.Errorf("%s: cannot force %v, only %v and %v", describe(b.name), s, ForcedOpen, ForcedClosed)
	}
	b.mu.Lock()
	defer b.unlock()
	if b.state != s {
		b.changeState(s, now, CauseForced)
	}
	return nil
}

// ResetAt is [Breaker.Reset] at the time now.
func (b *Breaker) ResetAt(now time.Duration) {
	b.mu.Lock()
	defer b.unlock()
	b.changeState(Closed, now, CauseReset)
}
