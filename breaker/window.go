package breaker

import (
	"math"
	"sync/atomic"
	"time"
)

// window counts the results of one closed period. Each period has its own window, and
// a [Permit] points to the window in which its call began. So a late result adds to a
// window that is no longer read, and needs no check.
//
// A success only increments n. Failures and slow calls also take their number from n,
// under the breaker's lock. So the order of all calls is the order of their numbers,
// and the counts are exact whenever the lock is held: every number up to n that is
// not recorded as bad is a success.
type window struct {
	n    atomic.Uint64 // number of results
	edge atomic.Int64  // from this time on, n may only be incremented with the lock held

	// The rest is guarded by the breaker's lock.
	failuresInRow int    // failures in a row up to lastFail
	lastFail      uint64 // number of the last failure
	tally         tally

	_ [16]byte // fills a cache line, so that windows of other breakers do not share it
}

// tally records the bad calls of a window. The argument n is always the number
// of results so far.
type tally interface {
	// advance drops the results that have left the window at the time now. It
	// returns the time up to which successes may be counted without another
	// call of advance.
	advance(now time.Duration, n uint64) (edge time.Duration)
	// recordBad records that call number n was bad.
	recordBad(n uint64, b badness)
	// counts returns all counts except the consecutive failures.
	counts(n uint64) Counts
}

// badness says in which way a call was bad; the zero value is a good call.
type badness struct{ failed, slow bool }

// newWindow returns an empty window for the configuration.
func newWindow(c Config) *window {
	w := new(window)
	if c.WindowCalls > 0 {
		w.tally = &callTally{size: uint64(c.WindowCalls)}
		w.edge.Store(math.MaxInt64)
		return w
	}
	w.tally = &timeTally{width: (c.Window-1)/slicesPerWindow + 1} // rounded up
	w.edge.Store(math.MinInt64)                                   // its first slice begins with the first result
	return w
}

// addSuccess counts a success without the lock. It returns false, and counts
// nothing, if the window must be advanced first.
func (w *window) addSuccess(now time.Duration) bool {
	if int64(now) >= w.edge.Load() {
		return false
	}
	w.n.Add(1)
	return true
}

// add counts a result of any kind. It needs the lock.
func (w *window) add(now time.Duration, b badness) {
	w.advance(now)
	n := w.n.Add(1)
	if b.failed {
		if n != w.lastFail+1 {
			w.failuresInRow = 0
		}
		w.failuresInRow++
		w.lastFail = n
	}
	if b != (badness{}) {
		w.tally.recordBad(n, b)
	}
}

// counts returns the counts of the window. It needs the lock.
func (w *window) counts(now time.Duration) Counts {
	n := w.advance(now)
	c := w.tally.counts(n)
	if n == w.lastFail {
		c.ConsecutiveFailures = w.failuresInRow
	}
	return c
}

// advance drops what has left the window and returns the number of results.
func (w *window) advance(now time.Duration) uint64 {
	n := w.n.Load()
	w.edge.Store(int64(w.tally.advance(now, n)))
	return n
}
