package breaker

import (
	"math"
	"time"
)

// callTally records which of the last size calls were bad. It does not record
// successes: every other call number is a success.
type callTally struct {
	size     uint64
	bad      []badCall // oldest first; those before head have left the window
	head     int
	failures int // number of failures in bad[head:]
	slow     int // number of slow calls in bad[head:]
}

type badCall struct {
	n uint64
	badness
}

func (t *callTally) advance(_ time.Duration, n uint64) time.Duration {
	for t.head < len(t.bad) && t.bad[t.head].n+t.size <= n {
		t.count(t.bad[t.head].badness, -1)
		t.head++
	}
	return math.MaxInt64
}

func (t *callTally) recordBad(n uint64, b badness) {
	t.advance(0, n)
	// If half of the slice has left the window, moving the other half down is
	// cheaper than growing, and bounds the memory by the window size.
	if len(t.bad) == cap(t.bad) && t.head >= (len(t.bad)+1)/2 {
		t.bad = t.bad[:copy(t.bad, t.bad[t.head:])]
		t.head = 0
	}
	t.bad = append(t.bad, badCall{n, b})
	t.count(b, 1)
}

func (t *callTally) count(b badness, by int) {
	if b.failed {
		t.failures += by
	}
	if b.slow {
		t.slow += by
	}
}

func (t *callTally) counts(n uint64) Counts {
	return Counts{Calls: int(min(n, t.size)), Failures: t.failures, Slow: t.slow}
}
