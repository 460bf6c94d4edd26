package breaker

import (
	"math"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// The methods in this file are the state machine. All but admit, report and
// reportProbe, which take the lock, need it held.

// admit decides about a call when not every call passes.
func (b *Breaker) admit(now time.Duration) (Permit, error) {
	b.mu.Lock()
	defer b.unlock()
	if b.elapsed(now) {
		b.enter(HalfOpen, now, CauseOpenElapsed)
	}
	wait := b.wait(now)
	switch {
	case b.state.passes(): // since AllowAt looked
		return Permit{breaker: b, window: b.closed.Load(), start: now}, nil
	case b.state == HalfOpen && wait == 0:
		return Permit{breaker: b, probe: b.probes.start(now), start: now}, nil
	}
	return Permit{}, &OpenError{Name: b.name, State: b.state, For: wait}
}

// report counts the result of a call that began in the window w.
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
	if cause := b.config.trips(w.counts(now)); cause != "" {
		b.open(now, cause)
	}
}

// reportProbe counts the result of a probe.
func (b *Breaker) reportProbe(id uint64, now time.Duration, r Result, bad badness) {
	b.mu.Lock()
	defer b.unlock()
	if !b.probes.end(id) || r == Canceled {
		return
	}
	b.probes.count(bad)
	switch {
	case bad.failed:
		b.open(now, CauseProbeFailed)
	case bad.slow:
		// Closing now would only count slow calls until it opens again.
		b.open(now, CauseProbeSlow)
	case b.probes.counts.Calls >= b.config.ProbeSuccesses:
		b.enter(Closed, now, CauseProbeSucceeded)
	}
}

// open opens the breaker for the schedule's next delay.
func (b *Breaker) open(now time.Duration, cause Cause) {
	var u uint64
	if b.config.Open.Random() {
		u = b.random() // before anything changes: it is not our code and may panic
	}
	b.openings++
	b.openFor = b.config.Open.Delay(b.openings, b.openFor, u)
	b.until = clock.Later(now, b.openFor)
	b.enter(Open, now, cause)
}

// enter changes the state, and starts it afresh if it is the same.
func (b *Breaker) enter(to State, now time.Duration, cause Cause) {
	e := Event{Name: b.name, From: b.state, To: to, At: now, Cause: cause, Counts: b.counts(now)}
	b.state = to
	b.probes.clear()
	if to == Closed {
		b.openings, b.openFor = 0, 0
	}
	var w *window
	if to.passes() {
		w = newWindow(b.config)
	}
	b.closed.Store(w)
	e.OpenFor = b.wait(now)
	b.post(e)
}

// elapsed reports whether the breaker was opened and its open time is over.
func (b *Breaker) elapsed(now time.Duration) bool { return b.state == Open && now >= b.until }

// wait returns how long calls will still be refused.
func (b *Breaker) wait(now time.Duration) time.Duration {
	switch b.state {
	case Open:
		return max(b.until-now, 0)
	case HalfOpen:
		return b.probes.wait(now)
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
