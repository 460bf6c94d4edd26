package retry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// Error is what a runner returns when it gives up. It unwraps to the reason and
// to the last failure, so errors.Is and errors.As find both.
type Error struct {
	Name     string        // the runner's name, if it has one
	Reason   Reason        // why it stopped
	Attempts int           // attempts made
	Elapsed  time.Duration // time spent; a runner that needs no clock before the first failure counts from there
	Last     error         // the last failure; nil when no attempt was made
	Cause    error         // what the context was canceled with, or what refused the attempt; often nil

	failures int // in all
	first    [firstKept]Failure
	latest   *[lastKept]Failure // a ring; nil until the first ones are full
}

// History returns the failed attempts in order: all of them up to eight,
// otherwise the first four and the last four.
func (e *Error) History() []Failure {
	list := append([]Failure(nil), e.first[:min(e.failures, firstKept)]...)
	for i := max(firstKept, e.failures-lastKept); i < e.failures; i++ {
		list = append(list, e.latest[i%lastKept])
	}
	return list
}

// Error says what happened in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Name != "" {
		b.WriteString(e.Name + ": ")
	}
	switch {
	case e.Attempts == 0:
		b.WriteString("not attempted")
	case e.Reason == StopPermanent:
		fmt.Fprintf(&b, "attempt %d", e.Attempts)
	default:
		fmt.Fprintf(&b, "gave up after %s", textfmt.Plural(e.Attempts, "attempt"))
	}
	if e.Elapsed >= time.Millisecond { // less is noise
		b.WriteString(" in " + roundTime(e.Elapsed).String())
	}
	if e.Reason != StopPermanent || !OutcomeOf(e.Last).Final { // which says by itself why it is not repeated
		b.WriteString(": " + e.Reason.Error())
	}
	last := ""
	if e.Last != nil {
		last = e.Last.Error()
	}
	if e.Cause != nil && e.Cause.Error() != last {
		b.WriteString(": " + e.Cause.Error())
	}
	if last != "" {
		b.WriteString(": " + last)
	}
	return b.String()
}

// Unwrap returns the reason, the cause and the last failure.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Reason, e.Cause, e.Last}, func(err error) bool { return err == nil })
}

// Is makes every cancellation a [context.Canceled], also one with a cause, and a call
// that ran out of time a [context.DeadlineExceeded].
func (e *Error) Is(target error) bool {
	switch e.Reason {
	case StopCanceled:
		return target == context.Canceled
	case StopDeadline, StopTotalTimeout:
		return target == context.DeadlineExceeded
	default:
		return false
	}
}

// Timeout implements the interface of net.Error: it reports whether time ran
// out, by our limits, the caller's or those of the last attempt.
func (e *Error) Timeout() bool {
	if e.Reason == StopDeadline || e.Reason == StopTotalTimeout {
		return true
	}
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.Last)
	return ok && t.Timeout()
}

// Temporary implements the interface of net.Error, which has it for historical reasons:
// it reports whether time ran out, or whether the last failure says that it may pass.
func (e *Error) Temporary() bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](e.Last)
	return e.Timeout() || ok && t.Temporary()
}

// RetryOutcome tells a runner around this one what stays as it is: a permanent
// failure, an attempt that is still running, the delay that a server stated.
// Anything else may be tried again.
func (e *Error) RetryOutcome() Outcome {
	switch e.Reason {
	case StopPermanent:
		return Outcome{Class: ClassPermanent}
	case StopStuck:
		return Outcome{Class: ClassStuck}
	case StopServerWait:
		return OutcomeOf(e.Last)
	default:
		return Outcome{}
	}
}

// Failure is one failed attempt.
type Failure struct {
	Attempt int           // its number, from 1
	Err     error         // what it returned
	Wait    time.Duration // the wait that followed; 0 after the last one
	By      Source        // who set the wait
}

// String says what happened in one line.
func (f Failure) String() string {
	text := fmt.Sprintf("attempt %d: %v", f.Attempt, f.Err)
	if f.Wait > 0 {
		text += fmt.Sprintf("; waited %v, set by %v", roundTime(f.Wait), f.By)
	}
	return text
}

// history keeps the first and the last failures of a call, and so stays small
// however often it is retried.
type history struct {
	n      int // failures in all
	first  [firstKept]Failure
	latest [lastKept]Failure // a ring
}

const firstKept, lastKept = 4, 4

func (h *history) add(attempt int, err error) {
	h.n++
	*h.last() = Failure{Attempt: attempt, Err: err}
}

// last returns the last failure.
func (h *history) last() *Failure {
	if h.n <= firstKept {
		return &h.first[h.n-1]
	}
	return &h.latest[(h.n-1)%lastKept]
}

// waited notes the wait that follows the last failure.
func (h *history) waited(d Decision) {
	f := h.last()
	f.Wait, f.By = d.Wait, d.By
}

// keep hands the history over to the error. Most calls give up after a few
// attempts, and then it fits into the error itself.
func (h *history) keep(e *Error) {
	e.Last, e.failures, e.first = h.last().Err, h.n, h.first
	if h.n > firstKept {
		e.latest = new(h.latest)
	}
}

// TimeoutError is the failure of an attempt that ran out of time, and the cause
// with which its context ended.
type TimeoutError struct {
	Limit time.Duration // the limit that was reached
	Total bool          // it is the limit of the whole call, not of the attempt
	Err   error         // what the operation returned; nil in a context's cause
}

// Error says which limit was reached.
func (e *TimeoutError) Error() string {
	s := "attempt timed out after " + e.Limit.String()
	if e.Total {
		s = "total timeout of " + e.Limit.String() + " reached"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns what the operation returned.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Is makes the error a [context.DeadlineExceeded].
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout implements the interface of net.Error and os.IsTimeout.
func (e *TimeoutError) Timeout() bool { return true }

// roundTime keeps three digits or so: more is noise to a reader.
func roundTime(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}

// Reason says why a runner stopped. It is an error, so that
// errors.Is(err, retry.StopBudget) tells one from another.
type Reason uint8

// The reasons. Zero is none. The numbers are stored: add a new reason at the end.
const (
	StopAttempts     Reason = iota + 1 // the policy's attempts are used up
	StopTotalTimeout                   // the next attempt would start after the total timeout
	StopDeadline                       // the next attempt would start after the context's deadline
	StopPermanent                      // the failure is permanent, or must not be repeated
	StopBudget                         // the retry budget is empty
	StopBreaker                        // the breaker is open
	StopLimit                          // the concurrency or rate limit refused the attempt
	StopServerWait                     // the server asked for a longer wait than the policy grants
	StopCanceled                       // the caller canceled
	StopStuck                          // an attempt did not end when its context did
	StopLost                           // the process ended in the attempt too often
	StopTimeout                        // the run's own time is over
	StopWindows                        // the number of limits that were waited for is used up
)

var reasonNames = [...]string{
	"", "attempts", "total-timeout", "deadline", "permanent", "budget",
	"breaker-open", "limit", "server-wait", "canceled", "stuck",
	"lost", "timeout", "windows",
}

var reasonTexts = [...]string{
	"",
	"attempts used up",
	"total timeout too close for another attempt",
	"deadline too close for another attempt",
	"permanent failure",
	"retry budget empty",
	"breaker open",
	"limit reached",
	"server asks for too long a wait",
	"canceled",
	"attempt did not end when told to",
	"process ended in the attempt too often",
	"time is over",
	"told to come back later too often",
}

// String returns the reason's name, as it stands in events.
func (r Reason) String() string { return name(reasonNames[:], r) }

// Error returns the reason in words.
func (r Reason) Error() string { return name(reasonTexts[:], r) }

// ParseReason returns the reason that has the name; see [Reason.String].
func ParseReason(name string) (r Reason, ok bool) {
	r, ok = valueOf[Reason](reasonNames[:], name)
	return r, ok && r != 0
}

// name returns the n-th name, or the number when there is none.
func name[T ~uint8](names []string, n T) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%T(%d)", n, uint8(n))
}

// valueOf returns the number that has the name.
func valueOf[T ~uint8](names []string, s string) (T, bool) {
	for i, n := range names {
		if n == s {
			return T(i), true
		}
	}
	return 0, false
}
