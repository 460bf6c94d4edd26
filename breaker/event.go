package breaker

import (
	"sync"
	"time"
)

// Event is a change of state.
//
// Observers receive events one at a time and in the order of the changes, on a
// goroutine that is calling the breaker, with no lock held. A slow observer
// delays that goroutine. Observers may call any method of the breaker; changes
// that they cause are reported after they return. An event may arrive just
// after the call that caused it has returned, if another goroutine was
// delivering events at that moment.
//
// A panic in an observer is recovered and dropped, because the call on whose
// goroutine it runs is not at fault; the other observers still receive the
// event. An observer that needs to know of its panics must recover them itself.
type Event struct {
	Name    string        // the breaker's name
	From    State         // the state that ended
	To      State         // the state that began
	At      time.Duration // time of the change, by the clock that the breaker was called with
	Cause   Cause         // why
	Counts  Counts        // the results that counted in From, up to the change
	OpenFor time.Duration // how long calls will be rejected, as [Breaker.OpenFor]
}

// Cause is the reason of a change of state.
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

// eventQueue holds the events that observers have not received yet. Its methods
// need the breaker's lock held, except deliver and pop, which take it.
type eventQueue struct {
	waiting    []Event
	delivering bool // a goroutine is in deliver; it also delivers events that are added now
}

// startDelivery reports whether the caller must call deliver after it has unlocked:
// there are events, and no other goroutine delivers.
func (q *eventQueue) startDelivery() bool {
	start := len(q.waiting) > 0 && !q.delivering
	q.delivering = q.delivering || start
	return start
}

// deliver passes events to the observers until there are none. Only one goroutine
// does so at a time, which keeps the events in order.
func (q *eventQueue) deliver(mu *sync.Mutex, observers []func(Event)) {
	finished := false
	defer func() {
		if !finished { // an observer ended the goroutine, as a test's Fatal does
			mu.Lock()
			q.delivering = false
			again := q.startDelivery()
			mu.Unlock()
			if again {
				q.deliver(mu, observers)
			}
		}
	}()
	for e, ok := q.pop(mu); ok; e, ok = q.pop(mu) {
		for _, observe := range observers {
			notify(observe, e)
		}
	}
	finished = true
}

// pop removes and returns the oldest event; if there is none it ends the delivery.
func (q *eventQueue) pop(mu *sync.Mutex) (Event, bool) {
	mu.Lock()
	defer mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.delivering = false
		return Event{}, false
	}
	e := q.waiting[0]
	q.waiting = q.waiting[1:]
	return e, true
}

// notify calls an observer and recovers its panic.
func notify(observe func(Event), e Event) {
	defer func() { _ = recover() }()
	observe(e)
}
