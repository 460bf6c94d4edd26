package breaker

import (
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// parts is into how many slices a window of time is cut. A slice leaves the
// window as a whole.
const parts = 10

// timeTally counts bad calls in a ring of slices of time. Successes are not
// counted here either: each slice knows how many results there were before it.
type timeTally struct {
	width   time.Duration
	edge    time.Duration // when the current slice ends
	started bool
	current int // index of the slice that edge ends; the next one is the oldest
	ring    [parts]slice
}

type slice struct {
	before   uint64 // results before the slice began
	failures int
	slow     int
}

// advance never goes back: a result with a time before the current slice, which
// goroutines that overtake each other produce, counts in the current slice.
func (t *timeTally) advance(now time.Duration, n uint64) time.Duration {
	switch {
	case !t.started:
		t.started = true
		t.edge = clock.Later(now, t.width)
	case now >= t.edge:
		over := now - t.edge
		for range min(over/t.width+1, parts) {
			t.current = (t.current + 1) % parts
			t.ring[t.current] = slice{before: n}
		}
		t.edge = clock.Later(now-over%t.width, t.width)
	}
	return t.edge
}

func (t *timeTally) mark(_ uint64, b badness) {
	s := &t.ring[t.current]
	if b.failed {
		s.failures++
	}
	if b.slow {
		s.slow++
	}
}

func (t *timeTally) counts(n uint64) Counts {
	oldest := &t.ring[(t.current+1)%parts]
	c := Counts{Calls: int(n - oldest.before)}
	for i := range t.ring {
		c.Failures += t.ring[i].failures
		c.Slow += t.ring[i].slow
	}
	return c
}
