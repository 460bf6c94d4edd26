package retry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/enum"
	"github.com/tideover/tideover/internal/textfmt"
)

// Error is the error of a runner that gives up. It unwraps to the reason and
// to the last failure, so errors.Is and errors.As find both.
type Error struct {
	Name     string        // the runner's name, if it has one
	Reason   Reason        // why the runner gave up
	first    firstSources  // here because it fits in the padding after Reason
	Attempts int           // attempts made
	Elapsed  time.Duration // since the call began, or since the first failure if the runner needs no clock before
	Last     error         // the last failure; nil when no attempt was made
	Cause    error         // cause of the context's end, or error of the breaker or limit; often nil

	// The first failures. The error of number firstKept is in later, or it is Last: an
	// Error of 160 bytes is measurably cheaper than one of 192.
	errs  [firstKept - 1]error
	waits [firstKept]time.Duration
	later *laterFailures // nil if there are at most firstKept failures
}

// firstSources has the number of the first failures and the sources of their waits.
type firstSources struct {
	n  uint8 // at most firstKept
	by [firstKept]Source
}

// History returns the failed attempts in order: all of them up to eight,
// otherwise the first four and the last four.
func (e *Error) History() []Failure {
	kept := int(e.first.n)
	n := kept
	if e.later != nil {
		n = e.later.n
	}
	var list []Failure
	for i := range kept {
		f := Failure{Attempt: e.Attempts - n + 1 + i, Err: e.Last, Wait: e.waits[i], By: e.first.by[i]}
		switch {
		case i < len(e.errs):
			f.Err = e.errs[i]
		case e.later != nil:
			f.Err = e.later.err
		}
		list = append(list, f)
	}
	for i := max(firstKept, n-lastKept); i < n; i++ {
		list = append(list, e.later.ring[i%lastKept])
	}
	return list
}

// Error returns the name, the attempts, the elapsed time, the reason and the last
// failure in one line.
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
	if e.Elapsed >= time.Millisecond { // less does not interest a reader
		b.WriteString(" in " + roundTime(e.Elapsed).String())
	}
	if e.Reason != StopPermanent || !OutcomeOf(e.Last).Final { // the text of a Final failure says why it is not repeated
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

// Is makes errors.Is match [context.Canceled] for every cancellation, also one with a
// cause of its own, and [context.DeadlineExceeded] for a call that ran out of time.
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

// Timeout implements net.Error. It reports whether the call reached its total timeout
// or deadline, or the last failure is a timeout.
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

// Temporary implements net.Error, which has the method for historical reasons. It
// reports whether time ran out or the last failure says that it is temporary.
func (e *Error) Temporary() bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](e.Last)
	return e.Timeout() || ok && t.Temporary()
}

// RetryOutcome is for a runner around this one. A permanent failure, a stuck attempt
// and a delay stated by a server keep their outcome. Any other error is transient, so
// the outer runner may try again.
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
	Attempt int           // number of the attempt, from 1
	Err     error         // error that the attempt returned
	Wait    time.Duration // the wait that followed; 0 if none followed
	By      Source        // source of the wait
}

// String returns the failure and the wait after it in one line.
func (f Failure) String() string {
	text := fmt.Sprintf("attempt %d: %v", f.Attempt, f.Err)
	if f.Wait > 0 {
		text += fmt.Sprintf("; waited %v, set by %v", roundTime(f.Wait), f.By)
	}
	return text
}

// history has the first and the last failures of a call. Its size does not depend on
// the number of attempts.
type history struct {
	n     int // number of failures
	errs  [firstKept]error
	waits [firstKept]time.Duration
	by    [firstKept]Source
	later *laterFailures // nil until there are more than firstKept
}

const firstKept, lastKept = 4, 4

// laterFailures has the last failures of a call with more than firstKept.
type laterFailures struct {
	n    int   // number of all failures, also of the first; set when the call has given up
	err  error // of failure number firstKept, for which an [Error] has no room
	ring [lastKept]Failure
}

// add appends a failure, with the wait that follows it.
func (h *history) add(attempt int, err error, wait time.Duration, by Source) {
	i := uint(h.n)
	h.n++
	if i < firstKept {
		h.errs[i], h.waits[i], h.by[i] = err, wait, by
		return
	}
	if h.later == nil {
		h.later = new(laterFailures)
	}
	h.later.ring[i%lastKept] = Failure{attempt, err, wait, by}
}

// keep stores the history in the error.
func (h *history) keep(e *Error) {
	e.first, e.waits = firstSources{uint8(min(h.n, firstKept)), h.by}, h.waits
	for i := range e.errs { // a copy of the whole array costs more while the garbage collector runs
		e.errs[i] = h.errs[i]
	}
	if h.later == nil {
		e.Last = h.errs[h.n-1]
		return
	}
	e.later = h.later
	e.Last = e.later.ring[(h.n-1)%lastKept].Err
	e.later.n, e.later.err = h.n, h.errs[firstKept-1]
}

// TimeoutError is the failure of an attempt that reached a timeout. It is also the
// cause with which the attempt's context ends.
type TimeoutError struct {
	Limit time.Duration // the limit that was reached
	Total bool          // the limit applies to the whole call, not to the attempt
	Err   error         // error that the operation returned; nil in a context's cause
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

// Unwrap returns the error that the operation returned.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Is makes errors.Is match [context.DeadlineExceeded].
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout implements the interface of net.Error and os.IsTimeout.
func (e *TimeoutError) Timeout() bool { return true }

// roundTime rounds to about three digits, enough for a reader of a message.
func roundTime(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}

// Reason says why a runner gave up. It is an error, so that callers can test it with
// errors.Is(err, retry.StopBudget).
type Reason uint8

// The reasons. 0 means that the runner has not given up. The numbers are stored: add a
// new reason at the end.
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
	StopStuck                          // an attempt did not return after its context ended
	StopLost                           // the process ended during an attempt too often
	StopTimeout                        // the timeout of the run was reached
	StopWindows                        // the run has waited for MaxWindows rate-limit windows
	StopUndo                           // an undo of a run failed
)

var reasonNames = [...]string{
	"", "attempts", "total-timeout", "deadline", "permanent", "budget",
	"breaker-open", "limit", "server-wait", "canceled", "stuck",
	"lost", "timeout", "windows", "undo-failed",
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
	"attempt did not end when its context ended",
	"process ended in the attempt too often",
	"timeout of the run reached",
	"waited for too many rate-limit windows",
	"an undo failed",
}

// String returns the reason's name, as used in events.
func (r Reason) String() string { return enum.Name(reasonNames[:], r, "retry.Reason") }

// Error returns the reason as text for a message.
func (r Reason) Error() string { return enum.Name(reasonTexts[:], r, "retry.Reason") }

// ParseReason returns the reason that has the name; see [Reason.String].
func ParseReason(name string) (r Reason, ok bool) {
	r, ok = enum.Parse[Reason](reasonNames[:], name)
	return r, ok && r != 0
}
