package chart

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scale Scale
		want  []time.Duration
	}{
		{Scale{High: 4800 * time.Millisecond}, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}},
		{Scale{High: 5 * time.Minute}, []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute}},
		{Scale{High: 3}, []time.Duration{0, 1, 2, 3}},
		{Scale{Low: 5 * time.Millisecond, High: 5 * time.Second, Log: true}, []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}},
		{Scale{Low: 400 * time.Millisecond, High: 5 * time.Second, Log: true}, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}},
	} {
		if got := tt.scale.Ticks(6); !slices.Equal(got, tt.want) {
			t.Errorf("%+v.Ticks(6) = %v, want %v", tt.scale, got, tt.want)
		}
	}
}

func FuzzScale(f *testing.F) {
	f.Add(int64(1), int64(1000), int64(20), true)
	f.Add(int64(0), int64(0), int64(0), false)
	f.Add(int64(math.MaxInt64), int64(1), int64(math.MaxInt64), true)
	f.Fuzz(func(t *testing.T, a, b, c int64, log bool) {
		ds := []time.Duration{time.Duration(max(a, 0)), time.Duration(max(b, 0)), time.Duration(max(c, 0))}
		s := Scale{Log: log}
		s.Include(ds...)
		for _, d := range ds {
			if f := s.At(d); !(f >= 0 && f <= 1) {
				t.Errorf("%+v.At(%d) = %v, want 0 to 1", s, d, f)
			}
		}
		ticks := s.Ticks(6)
		if len(ticks) > 7 || !slices.IsSorted(ticks) {
			t.Errorf("%+v.Ticks(6) = %v", s, ticks)
		}
		for _, d := range ticks {
			if d < 0 || d > s.High {
				t.Errorf("%+v.Ticks(6) has %v", s, d)
			}
		}
	})
}
