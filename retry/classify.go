package retry

import (
	"errors"
	"time"
)

// Class is what a failure means for the next attempt.
type Class uint8

// The classes. An error that says nothing is transient.
const (
	ClassTransient Class = iota // may pass by itself
	ClassThrottled              // the other side asked for less; waits from the policy's ThrottleBase
	ClassPermanent              // will fail the same way again
	ClassCanceled               // the caller gave up
	ClassStuck                  // the attempt is still running, so that none may follow
)

var classNames = [...]string{"transient", "throttled", "permanent", "canceled", "stuck"}

// String returns the class's name.
func (c Class) String() string { return name(classNames[:], c) }

// Outcome is how a failed attempt looks to the policy. The zero Outcome is a
// transient failure.
type Outcome struct {
	Class Class
	Final bool          // a failure of its class, but one that must not be repeated
	After time.Duration // the least wait the server stated; 0 means none
	Delay time.Duration // used instead of the schedule's delay, within the cap; 0 means none

	// AtLeast is the least wait: the schedule's delay is prolonged to it, beyond the
	// cap too. Unlike After it is no word of a server, so that the policy's slack and
	// bound for those do not apply. 0 means none.
	AtLeast time.Duration
}

// Classified is an error that knows its outcome. It may stand anywhere in a
// chain of wrapped errors; the first one found counts.
type Classified interface {
	error
	RetryOutcome() Outcome
}

// Noted is an error that knows what it happened to, such as a request. Its words are
// the [Event.Note] of the events that tell of it. It may stand anywhere in a chain of
// wrapped errors; the first one found counts.
type Noted interface {
	error
	RetryNote() string
}

// noteOf returns what the error happened to, if it knows.
func noteOf(err error) string {
	if n, ok := errors.AsType[Noted](err); ok {
		return n.RetryNote()
	}
	return ""
}

// Permanent marks an error as one that no retry will cure. It returns nil for
// a nil error.
func Permanent(err error) error {
	return mark(err, func(o *Outcome) { o.Class = ClassPermanent })
}

// Throttled marks an error as the other side's request for less, so that the
// wait starts from the policy's ThrottleBase. It returns nil for a nil error.
func Throttled(err error) error {
	return mark(err, func(o *Outcome) { o.Class = ClassThrottled })
}

// After marks an error with the least wait that the server stated. A wait of
// zero or less states nothing. It returns nil for a nil error.
func After(err error, wait time.Duration) error {
	return mark(err, func(o *Outcome) { o.After = max(wait, 0) })
}

// marked is an error with an outcome.
type marked struct {
	err     error
	outcome Outcome
}

func (m *marked) Error() string         { return m.err.Error() }
func (m *marked) Unwrap() error         { return m.err }
func (m *marked) RetryOutcome() Outcome { return m.outcome }

// mark wraps the error, keeping what it or one that it wraps says already.
func mark(err error, change func(*Outcome)) error {
	if err == nil {
		return nil
	}
	m := &marked{err, OutcomeOf(err)}
	change(&m.outcome)
	return m
}

// Marked reports whether the outcome that [OutcomeOf] returns comes from
// a mark by [Permanent], [Throttled] or [After], and not from an error type that
// states one for every error it wraps.
func Marked(err error) bool {
	c, _ := speaker(err)
	_, ok := c.(*marked)
	return ok
}

// OutcomeOf returns the outcome that the error, or one it wraps, states. An
// error that states none is transient.
func OutcomeOf(err error) Outcome {
	if c, ok := speaker(err); ok {
		return c.RetryOutcome()
	}
	return Outcome{}
}

// speaker returns the first error of the chain that knows its outcome.
func speaker(err error) (Classified, bool) {
	for err != nil {
		switch e := err.(type) {
		case Classified:
			return e, true
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if c, ok := speaker(err); ok {
					return c, true
				}
			}
			return nil, false
		default:
			return nil, false
		}
	}
	return nil, false
}
