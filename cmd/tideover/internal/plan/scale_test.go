package plan

import (
	"slices"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scale scale
		want  []time.Duration
	}{
		{scale{high: 4800 * time.Millisecond}, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}},
		{scale{high: 5 * time.Minute}, []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute}},
		{scale{high: 3}, []time.Duration{0, 1, 2, 3}},
		{scale{low: 5 * time.Millisecond, high: 5 * time.Second, log: true}, []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}},
		{scale{low: 400 * time.Millisecond, high: 5 * time.Second, log: true}, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}},
	} {
		if got := tt.scale.ticks(6); !slices.Equal(got, tt.want) {
			t.Errorf("%+v.ticks(6) = %v, want %v", tt.scale, got, tt.want)
		}
	}
}

func FuzzScale(f *testing.F) {
	f.Add(int64(1), int64(1000), int64(20), true)
	f.Add(int64(0), int64(0), int64(0), false)
	f.Add(int64(forever), int64(1), int64(forever), true)
	f.Fuzz(func(t *testing.T, a, b, c int64, log bool) {
		ds := []time.Duration{time.Duration(max(a, 0)), time.Duration(max(b, 0)), time.Duration(max(c, 0))}
		s := scale{log: log}
		s.include(ds...)
		for _, d := range ds {
			if f := s.at(d); !(f >= 0 && f <= 1) {
				t.Errorf("%+v.at(%d) = %v, want 0 to 1", s, d, f)
			}
		}
		ticks := s.ticks(6)
		if len(ticks) > 7 || !slices.IsSorted(ticks) {
			t.Errorf("%+v.ticks(6) = %v", s, ticks)
		}
		for _, d := range ticks {
			if d < 0 || d > s.high {
				t.Errorf("%+v.ticks(6) has %v", s, d)
			}
		}
	})
}
