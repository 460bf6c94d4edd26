package breaker

import (
	"math"
	"sync/atomic"
	"time"
)

// window counts the results of one closed period. Each period gets a window of
// its own and a [Permit] points to that of its call, so a result that comes in
// late adds to a window that is no longer read, without a check on the way.
//
// A plain success adds one to n and writes nothing else. Failures and slow
// calls also take their number from n, under the breaker's lock, so the order
// of all calls is the order of their numbers and the counts are exact whenever
// the lock is held: every number up to n that is not marked bad is a success.
type window struct {
	n    atomic.Uint64 // results so far
	edge atomic.Int64  // from this time on n may not be added to without the lock

	// The rest is guarded by the breaker's lock.
	run      int    // failures in a row up to lastFail
	lastFail uint64 // number of the last failure
	tally    tally

	_ [16]byte // fills a cache line, so that no other breaker's window shares it
}

// tally is what a window remembers about the calls in it. n is always the
// number of results so far.
type tally interface {
	// advance forgets what has left the window by now, and returns the time
	// until which there is no need to call it before a success.
	advance(now time.Duration, n uint64) (edge time.Duration)
	// mark notes that call number n was bad.
	mark(n uint64, b badness)
	// counts returns all but the consecutive failures.
	counts(n uint64) Counts
}

// badness is what was wrong with a call.
type badness struct{ failed, slow bool }

func newWindow(c Config) *window {
	w := new(window)
	if c.WindowCalls > 0 {
		w.tally = &callTally{size: uint64(c.WindowCalls)}
		w.edge.Store(math.MaxInt64)
		return w
	}
	w.tally = &timeTally{width: (c.Window-1)/parts + 1} // rounded up
	w.edge.Store(math.MinInt64)                         // its first slice begins with the first result
	return w
}

// succeed counts a success without the lock, if the time allows.
func (w *window) succeed(now time.Duration) bool {
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
			w.run = 0
		}
		w.run++
		w.lastFail = n
	}
	if b != (badness{}) {
		w.tally.mark(n, b)
	}
}

// counts returns what is in the window. It needs the lock.
func (w *window) counts(now time.Duration) Counts {
	n := w.advance(now)
	c := w.tally.counts(n)
	if n == w.lastFail {
		c.ConsecutiveFailures = w.run
	}
	return c
}

// advance forgets what has left the window and returns the number of results.
func (w *window) advance(now time.Duration) uint64 {
	n := w.n.Load()
	w.edge.Store(int64(w.tally.advance(now, n)))
	return n
}
