package backoff

import (
	"math"
	"math/bits"
	"time"
)

// maxRows is the most rows of a table, 16 bytes each. An exponential schedule from
// 1 ms to 1 hour needs 23.
const maxRows = 32

// Table is a compiled [Schedule]: the ranges of its first delays are computed in
// advance, so that [Table.Delay] only draws from a range. A table never changes, and
// any number of goroutines can use one. [Schedule.Compile] makes it.
type Table struct {
	rows     []row // one for each retry, from the first; empty if delays depend on the previous delay
	steady   bool  // the last row holds for all later retries, too
	schedule Schedule
}

// row is the range of the delay of one retry.
type row struct {
	lo   time.Duration
	size uint64 // number of delays in the range: the longest minus the shortest plus 1
}

// Compile returns a table that returns the same delays as the schedule, for callers that
// need many delays of one schedule. A schedule that is not valid, and one of kind
// [Decorrelated], gain nothing.
func (s Schedule) Compile() *Table {
	t := &Table{schedule: s}
	if s.Kind == Decorrelated || s.Validate() != nil {
		return t
	}
	for k := 1; k <= maxRows && !t.steady; k++ {
		lo, hi := s.delayRange(k, 0)
		t.rows = append(t.rows, row{lo, uint64(hi-lo) + 1})
		t.steady = s.steadyFrom(k)
	}
	return t
}

// Schedule returns the schedule from which the table was made.
func (t *Table) Schedule() Schedule { return t.schedule }

// Delay returns what [Schedule.Delay] returns for the same arguments.
func (t *Table) Delay(retry int, prev time.Duration, u uint64) time.Duration {
	if i := uint(retry - 1); i < uint(len(t.rows)) {
		return t.rows[i].pick(u)
	}
	return t.compute(retry, prev, u)
}

// compute returns the delay of a retry that has no row of its own.
func (t *Table) compute(retry int, prev time.Duration, u uint64) time.Duration {
	if t.steady && retry > len(t.rows) {
		return t.rows[len(t.rows)-1].pick(u)
	}
	return t.schedule.draw(retry, prev, u)
}

// pick returns a delay of the range.
func (r row) pick(u uint64) time.Duration {
	n, _ := bits.Mul64(u, r.size)
	return r.lo + time.Duration(n)
}

// steadyFrom reports whether all retries after this one have the same range of delays.
// The schedule must be valid and not decorrelated.
func (s *Schedule) steadyFrom(retry int) bool {
	switch {
	case s.Kind == Fixed || s.MaxDoublings > 0 && retry > s.MaxDoublings:
		return true
	case s.Factor > 0 && s.Factor < 1.01:
		return false // the powers of such a factor may fall by a rounding error
	case s.Cap > 0:
		return s.baseDelay(retry) >= s.Cap
	default:
		return s.baseDelay(retry) == math.MaxInt64
	}
}
