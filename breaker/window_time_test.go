package breaker_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
)

func TestATimeWindowForgetsSliceBySlice(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{Window: 10 * sec})
	calls(t, b, 3*sec, 2, breaker.Success) // the first slice: 3s to 4s
	call(t, b, 4*sec-1, breaker.Failure)
	call(t, b, 4*sec, breaker.Failure) // the second
	tests := []struct {
		now             time.Duration
		calls, failures int
	}{
		{4 * sec, 4, 2},
		{13*sec - 1, 4, 2},
		{13 * sec, 1, 1},
		{14*sec - 1, 1, 1},
		{14 * sec, 0, 0},
		{time.Hour, 0, 0},
	}
	for _, tt := range tests {
		want := breaker.Counts{Calls: tt.calls, Failures: tt.failures, ConsecutiveFailures: 2}
		wantCounts(t, b, tt.now, want)
	}
}

// stamped is a result in the naive model of a time window.
type stamped struct {
	tick time.Duration
	outcome
}

// FuzzTimeWindow gives each result two bytes: the time since the last one and
// what it was.
func FuzzTimeWindow(f *testing.F) {
	f.Add(uint16(100), []byte{0, 's', 20, 'f', 255, 'S', 9, 'F'})
	f.Fuzz(func(t *testing.T, width uint16, steps []byte) { compareTimes(t, width, steps) })
}

func TestTimeWindowMatchesTheModelOnRandomHistories(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		steps := make([]byte, r.IntN(600))
		for i := range steps {
			steps[i] = byte(r.Uint32())
			if i%2 == 0 && r.IntN(3) > 0 {
				steps[i] = 0
			}
		}
		compareTimes(t, uint16(r.IntN(120)), steps)
	}
}

// compareTimes uses one nanosecond as the unit of time: the window counts in
// slices of width+1.
func compareTimes(t *testing.T, width uint16, steps []byte) {
	t.Helper()
	w := time.Duration(width) + 1
	b := breaker.Must(breaker.Config{Window: 10 * w, FailureRate: 1, MinCalls: math.MaxInt32, SlowCall: sec})
	origin := 2 * sec
	now := origin
	var all []stamped
	for ; len(steps) >= 2; steps = steps[2:] {
		if len(all) > 0 {
			now += time.Duration(steps[0])
		}
		o := outcome{failed: steps[1]&1 != 0, slow: steps[1]&2 != 0}
		start := now
		if o.slow {
			start -= sec
		}
		r := breaker.Success
		if o.failed {
			r = breaker.Failure
		}
		allow(t, b, start).DoneAt(now, r)
		all = append(all, stamped{(now - origin) / w, o})
		wantCounts(t, b, now, countStamped(all, (now-origin)/w))
	}
}

func countStamped(all []stamped, tick time.Duration) (c breaker.Counts) {
	run := 0
	for _, s := range all {
		run++
		if !s.failed {
			run = 0
		}
		if s.tick <= tick-10 {
			continue
		}
		c.Calls++
		if s.failed {
			c.Failures++
		}
		if s.slow {
			c.Slow++
		}
	}
	c.ConsecutiveFailures = run
	return c
}

func TestAResultFromBeforeTheCurrentSliceCountsInIt(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{Window: 10 * sec})
	call(t, b, 0, breaker.Success)
	call(t, b, 5*sec, breaker.Success)
	call(t, b, 2*sec, breaker.Failure)
	wantCounts(t, b, 14*sec, breaker.Counts{Calls: 2, Failures: 1, ConsecutiveFailures: 1})
	wantCounts(t, b, 15*sec, breaker.Counts{ConsecutiveFailures: 1})
}

func TestTheEndOfTimeDoesNotOverflow(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{Window: math.MaxInt64})
	call(t, b, math.MaxInt64-1, breaker.Failure)
	call(t, b, math.MaxInt64, breaker.Failure)
	if got := b.CountsAt(math.MaxInt64).ConsecutiveFailures; got != 2 {
		t.Errorf("ConsecutiveFailures at the end of time = %d, want 2", got)
	}
}

func TestTheSmallestWindowCounts(t *testing.T) {
	t.Parallel()
	b := breaker.Must(breaker.Config{Window: 1})
	call(t, b, 0, breaker.Failure)
	wantCounts(t, b, 0, breaker.Counts{Calls: 1, Failures: 1, ConsecutiveFailures: 1})
	wantCounts(t, b, 10, breaker.Counts{ConsecutiveFailures: 1})
}
