package limit

import (
	"math"
	"testing"
	"time"
)

func TestTicksDivideTheIntervalExactly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f    Frequency
		step int64
	}{
		{Frequency{10, time.Second}, 100_000_000},
		{Frequency{3, time.Second}, 333_333_334},
		{Frequency{50, time.Minute}, 1_200_000_000},
		{Frequency{999_983, time.Second}, 1001},
		{Frequency{1_000_000_000, time.Second}, 1},
		{Frequency{700_000_000, time.Second}, 2},
	} {
		ts := newTicks(tt.f)
		if ts.step != tt.step {
			t.Errorf("%v: %d ticks between events, want %d", tt.f, ts.step, tt.step)
		}
		// After a span, the events of the span are due on the tick.
		floor, ceil := ts.floorCeil(tt.f.Per)
		if want := int64(tt.f.Events) * ts.step; floor != want || ceil != want {
			t.Errorf("%v: one span is %d to %d ticks, want %d", tt.f, floor, ceil, want)
		}
	}
}

func FuzzTicks(f *testing.F) {
	f.Add(3, int64(time.Second), int64(math.MaxInt64/4))
	f.Add(999_983, int64(day), int64(12345))
	f.Add(1, int64(1), int64(0))
	f.Fuzz(func(t *testing.T, events int, per, d int64) {
		freq := Frequency{events, time.Duration(per)}
		if freq.Validate() != nil || d < 0 || d > math.MaxInt64/4 {
			return
		}
		ts := newTicks(freq)
		floor, ceil := ts.floorCeil(time.Duration(d))
		if floor < d || ceil-floor > 1 || ceil < floor {
			t.Errorf("%v: at(%d) = %d, %d", freq, d, floor, ceil)
		}
		// The first nanosecond of a tick is the first that has reached it.
		first := ts.time(ceil)
		if got, _ := ts.floorCeil(first); got < ceil {
			t.Errorf("%v: time(%d) = %d, which is at tick %d", freq, ceil, first, got)
		}
		if first > 0 {
			if got, _ := ts.floorCeil(first - 1); got >= ceil {
				t.Errorf("%v: time(%d) = %d, but a nanosecond earlier is at tick %d", freq, ceil, first, got)
			}
		}
	})
}
