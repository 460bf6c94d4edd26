package retry

import (
	"errors"
	"time"

	"github.com/tideover/tideover/internal/enum"
)

// Class is the class of a failure. It decides whether and how to retry.
type Class uint8

// The classes. An error without a class is transient.
const (
	ClassTransient Class = iota // may succeed later
	ClassThrottled              // the other side asked for fewer requests; the delay starts from the policy's ThrottleBase
	ClassPermanent              // will fail the same way again
	ClassCanceled               // the caller canceled
	ClassStuck                  // the attempt is still running, so no other may start
)

var classNames = [...]string{"transient", "throttled", "permanent", "canceled", "stuck"}

// String returns the class's name.
func (c Class) String() string { return enum.Name(classNames[:], c, "retry.Class") }

// Outcome describes a failed attempt to the policy. The zero Outcome is a
// transient failure.
type Outcome struct {
	Class Class
	Final bool          // no retry, regardless of the class
	After time.Duration // the shortest wait that the server stated; 0 means none
	Delay time.Duration // used instead of the schedule's delay, within the cap; 0 means none

	// AtLeast is the shortest wait: a shorter delay of the schedule is extended to it,
	// even beyond the cap. Unlike After it is not stated by a server, so the policy's
	// ServerWait and ServerSlack do not apply. 0 means none.
	AtLeast time.Duration
}

// Classified is an error that has an outcome. It may be anywhere in a chain of
// wrapped errors; the first one in the chain counts.
type Classified interface {
	error
	RetryOutcome() Outcome
}

// Noted is an error that knows what it happened to, such as a request. RetryNote
// becomes the [Event.Note] of events about the error. It may be anywhere in a chain of
// wrapped errors; the first one in the chain counts.
type Noted interface {
	error
	RetryNote() string
}

// noteOf returns the note of the first [Noted] in the chain, or "".
func noteOf(err error) string {
	if n, ok := errors.AsType[Noted](err); ok {
		return n.RetryNote()
	}
	return ""
}

// Permanent marks an error that would occur again in every retry. It returns nil
// for a nil error.
func Permanent(err error) error {
	return mark(err, func(o *Outcome) { o.Class = ClassPermanent })
}

// Throttled marks an error with which the other side asks for fewer requests. The
// delay then starts from the policy's ThrottleBase. It returns nil for a nil error.
func Throttled(err error) error {
	return mark(err, func(o *Outcome) { o.Class = ClassThrottled })
}

// After marks an error with the shortest wait that the server stated. A wait of
// 0 or less means that the server stated none. It returns nil for a nil error.
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

// mark wraps the error with its present outcome after applying change to it.
func mark(err error, change func(*Outcome)) error {
	if err == nil {
		return nil
	}
	m := &marked{err, OutcomeOf(err)}
	change(&m.outcome)
	return m
}

// Marked reports whether the outcome that [OutcomeOf] returns was set by
// [Permanent], [Throttled] or [After], and not by an error type that implements
// [Classified].
func Marked(err error) bool {
	c, _ := speaker(err)
	_, ok := c.(*marked)
	return ok
}

// OutcomeOf returns the outcome of the first [Classified] in the chain of the error.
// Without one, the outcome is that of a transient failure.
func OutcomeOf(err error) Outcome {
	if c, ok := speaker(err); ok {
		return c.RetryOutcome()
	}
	return Outcome{}
}

// speaker returns the first [Classified] in the chain of the error.
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
