package breaker

import (
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// slicesPerWindow is the number of slices of a time window. A slice leaves the
// window as a whole.
const slicesPerWindow = 10

// timeTally counts bad calls in a ring of time slices. It does not count
// successes: each slice stores the number of results before it.
type timeTally struct {
	width   time.Duration
	edge    time.Duration // end of the current slice
	started bool
	current int // index of the current slice; the next one in the ring is the oldest
	ring    [slicesPerWindow]slice
}

type slice struct {
	before   uint64 // results before the slice began
	failures int
	slow     int
}

// advance starts the slice for the time now. It never goes back: goroutines that
// overtake each other may report a time before the current slice, and that result
// counts in the current slice.
func (t *timeTally) advance(now time.Duration, n uint64) time.Duration {
	switch {
	case !t.started:
		t.started = true
		t.edge = clock.Later(now, t.width)
	case now >= t.edge:
		over := now - t.edge
		for range min(over/t.width+1, slicesPerWindow) {
			t.current = (t.current + 1) % slicesPerWindow
			t.ring[t.current] = slice{before: n}
		}
		t.edge = clock.Later(now-over%t.width, t.width)
	}
	return t.edge
}

func (t *timeTally) recordBad(_ uint64, b badness) {
	s := &t.ring[t.current]
	if b.failed {
		s.failures++
	}
	if b.slow {
		s.slow++
	}
}

func (t *timeTally) counts(n uint64) Counts {
	oldest := &t.ring[(t.current+1)%slicesPerWindow]
	c := Counts{Calls: int(n - oldest.before)}
	for i := range t.ring {
		c.Failures += t.ring[i].failures
		c.Slow += t.ring[i].slow
	}
	return c
}
