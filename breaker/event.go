package breaker

import "time"

// Event is a change of state.
//
// Observers get events one at a time and in the order of the changes, on the
// goroutine of a call to the breaker that is under way, with no lock held. They
// may call any method of the breaker; changes they cause are reported after
// they return. An observer that takes long makes that call take long. An event
// may come just after the call that caused it has returned, if another
// goroutine was busy reporting.
//
// A panic in an observer is recovered and lost, since the call on whose
// goroutine it happens to run is not at fault; the other observers still get
// the event. An observer that wants to know of its panics recovers them itself.
type Event struct {
	Name    string        // of the breaker
	From    State         // the state that ended
	To      State         // the state that began
	At      time.Duration // when, by the clock that the breaker was called with
	Cause   Cause         // why
	Counts  Counts        // the results that counted in From, up to the change
	OpenFor time.Duration // how long calls will be refused, as [Breaker.OpenFor]
}

// Cause is why a breaker changed its state.
type Cause string

// The causes.
const (
	CauseFailureRate    Cause = "failure-rate"    // Config.FailureRate was reached
	CauseConsecutive    Cause = "consecutive"     // Config.ConsecutiveFailures was reached
	CauseSlowRate       Cause = "slow-rate"       // Config.SlowRate was reached
	CauseOpenElapsed    Cause = "open-elapsed"    // the open time is over and a probe begins
	CauseProbeFailed    Cause = "probe-failed"    // a probe failed
	CauseProbeSlow      Cause = "probe-slow"      // a probe succeeded, but slowly
	CauseProbeSucceeded Cause = "probe-succeeded" // enough probes succeeded
	CauseForced         Cause = "forced"          // Force was called
	CauseReset          Cause = "reset"           // Reset was called
)

// mail holds the events that observers have not got yet. It is guarded by the
// breaker's lock.
type mail struct {
	waiting    []Event
	delivering bool // some goroutine is at it and will find what is added
}

// post notes an event for the observers. It needs the lock.
func (b *Breaker) post(e Event) {
	if len(b.observers) > 0 && e.From != e.To {
		b.mail.waiting = append(b.mail.waiting, e)
	}
}

// unlock releases the lock and delivers the events that were posted under it.
func (b *Breaker) unlock() {
	mine := len(b.mail.waiting) > 0 && !b.mail.delivering
	if mine {
		b.mail.delivering = true
	}
	b.mu.Unlock()
	if mine {
		b.deliver()
	}
}

// deliver hands out events until there are none. Only one goroutine does so at
// a time, which is what keeps the events in order.
func (b *Breaker) deliver() {
	finished := false
	defer func() {
		if !finished { // an observer ended the goroutine, as a test's Fatal does
			b.mu.Lock()
			b.mail.delivering = false
			b.unlock()
		}
	}()
	for e, ok := b.next(); ok; e, ok = b.next() {
		for _, observe := range b.observers {
			notify(observe, e)
		}
	}
	finished = true
}

// next takes the oldest event, or ends the delivery.
func (b *Breaker) next() (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mail.waiting) == 0 {
		b.mail.waiting = nil
		b.mail.delivering = false
		return Event{}, false
	}
	e := b.mail.waiting[0]
	b.mail.waiting = b.mail.waiting[1:]
	return e, true
}

func notify(observe func(Event), e Event) {
	defer func() { _ = recover() }()
	observe(e)
}
