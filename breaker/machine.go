package breaker

import (
	"math"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// The methods in this file are the state machine. admit, report and reportProbe
// take the lock; the others need it held.

// admit returns a permit or an OpenError for a call that found the breaker
// neither Closed nor ForcedClosed.
func (b *Breaker) admit(now time.Duration) (Permit, error) {
	b.mu.Lock()
	defer b.unlock()
	if b.openTimeOver(now) {
		b.changeState(HalfOpen, now, CauseOpenElapsed)
	}
	wait := b.refusedFor(now)
	switch {
	case b.state.allowsAll(): // the state has changed since AllowAt read it
		return Permit{breaker: b, window: b.closed.Load(), start: now}, nil
	case b.state == HalfOpen && wait == 0:
		return Permit{breaker: b, probe: b.probes.start(now), start: now}, nil
	}
	return Permit{}, &OpenError{Name: b.name, State: b.state, For: wait}
}

// report counts the result of a call that began in the window w. It ignores the
// result if the breaker has left that window since.
func (b *Breaker) report(w *window, now time.Duration, bad badness) {
	b.mu.Lock()
	defer b.unlock()
	if b.closed.Load() != w {
		return
	}
	w.add(now, bad)
	if bad == (badness{}) || b.state != Closed {
		return
	}
	if cause := b.config.openingRule(w.counts(now)); cause != "" {
		b.open(now, cause)
	}
}

// reportProbe counts the result of a probe.
func (b *Breaker) reportProbe(id uint64, now time.Duration, r Result, bad badness) {
	b.mu.Lock()
	defer b.unlock()
	if !b.probes.finish(id) || r == Canceled {
		return
	}
	b.probes.count(bad)
	switch {
	case bad.failed:
		b.open(now, CauseProbeFailed)
	case bad.slow:
		// If a slow probe closed the breaker, slow calls would soon open it again.
		b.open(now, CauseProbeSlow)
	case b.probes.counts.Calls >= b.config.ProbeSuccesses:
		b.changeState(Closed, now, CauseProbeSucceeded)
	}
}

// open opens the breaker for the schedule's next delay.
func (b *Breaker) open(now time.Duration, cause Cause) {
	var u uint64
	if b.config.Open.Random() {
		u = b.random() // before any change: it is the user's function and may panic
	}
	b.openings++
	b.openFor = b.config.Open.Delay(b.openings, b.openFor, u)
	b.openUntil = clock.Later(now, b.openFor)
	b.changeState(Open, now, cause)
}

// changeState changes the state and adds the event. A change to the same state
// clears its counts and adds no event.
func (b *Breaker) changeState(to State, now time.Duration, cause Cause) {
	e := Event{Name: b.name, From: b.state, To: to, At: now, Cause: cause, Counts: b.counts(now)}
	b.state = to
	b.probes.clear()
	if to == Closed {
		b.openings, b.openFor = 0, 0
	}
	var w *window
	if to.allowsAll() {
		w = newWindow(b.config)
	}
	b.closed.Store(w)
	e.OpenFor = b.refusedFor(now)
	if len(b.observers) > 0 && e.From != e.To {
		b.events.waiting = append(b.events.waiting, e)
	}
}

// unlock unlocks the mutex and then delivers the events that were added under it.
func (b *Breaker) unlock() {
	deliver := b.events.startDelivery()
	b.mu.Unlock()
	if deliver {
		b.events.deliver(&b.mu, b.observers)
	}
}

// openTimeOver reports whether the breaker is open and its open time is over.
func (b *Breaker) openTimeOver(now time.Duration) bool { return b.state == Open && now >= b.openUntil }

// refusedFor returns how long calls will still be rejected.
func (b *Breaker) refusedFor(now time.Duration) time.Duration {
	switch b.state {
	case Open:
		return max(b.openUntil-now, 0)
	case HalfOpen:
		return b.probes.refusedFor(now)
	case ForcedOpen:
		return math.MaxInt64
	default:
		return 0
	}
}

// counts returns the results that count in the current state.
func (b *Breaker) counts(now time.Duration) Counts {
	if w := b.closed.Load(); w != nil {
		return w.counts(now)
	}
	return b.probes.counts
}
