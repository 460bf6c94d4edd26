package machine

import (
	"cmp"
	"time"

	"github.com/tideover/tideover/retry"
)

// later returns t + d, or the largest int64 if that overflows.
func later(t int64, d time.Duration) int64 {
	if s := t + int64(d); s >= t {
		return s
	}
	return 1<<63 - 1
}

// healthy reports whether the attempt that ends at this time has lasted for the policy's
// ResetAfter, so that earlier failures do not count any more.
func healthy(r *Run, step int, at int64) bool {
	after := r.StepDef(step).Policy.ResetAfter
	return after > 0 && at-r.Step(step).At >= int64(after)
}

// attemptEnd returns the deadline of an attempt that begins now. first is when the first attempt began.
func attemptEnd(r *Run, p *retry.Policy, first, now int64) int64 {
	end := r.Deadline
	least := func(t int64) {
		if end == 0 || t < end {
			end = t
		}
	}
	if p.AttemptTimeout > 0 {
		least(later(now, p.AttemptTimeout))
	}
	if p.TotalTimeout > 0 {
		least(later(first, p.TotalTimeout))
	}
	return end
}

// timeLeft returns the time until the run's deadline, in the form of [retry.State]: 0 means no
// deadline, and a negative value means that it is over.
func timeLeft(r *Run, now int64) time.Duration {
	if r.Deadline == 0 {
		return 0
	}
	return cmp.Or(time.Duration(r.Deadline-now), -1)
}
