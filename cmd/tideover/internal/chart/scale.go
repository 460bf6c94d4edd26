package chart

import (
	"math"
	"slices"
	"time"
)

const day = 24 * time.Hour

// Scale maps durations to the range from 0 to 1. All series of a chart share one scale.
type Scale struct {
	Low, High time.Duration // durations at the positions 0 and 1; a linear scale ignores Low and begins with 0
	Log       bool          // logarithmic; durations shorter than Low are at 0, too
}

// Include extends the scale, so that it contains these durations. It sets Low to half of the
// shortest duration above zero, so that this duration is visible on a logarithmic scale.
func (s *Scale) Include(ds ...time.Duration) {
	for _, d := range ds {
		s.High = max(s.High, d)
		if low := max(d/2, 1); d > 0 && (s.Low == 0 || low < s.Low) {
			s.Low = low
		}
	}
}

// At returns the position of a duration on the scale, from 0 to 1.
func (s Scale) At(d time.Duration) float64 {
	switch {
	case s.High == 0 || d <= 0:
		return 0
	case !s.Log:
		return float64(d) / float64(s.High)
	case d <= s.Low:
		return 0
	}
	return math.Log(float64(d)/float64(s.Low)) / math.Log(float64(s.High)/float64(s.Low))
}

// Ticks returns about n round durations for the labels of the scale.
func (s Scale) Ticks(n int) []time.Duration {
	var out []time.Duration
	if s.Log {
		if out = s.within(decades); len(out) < 3 {
			out = s.within(steps)
		}
		return thin(out, n)
	}
	step := s.step(n)
	for i := range int(s.High/step) + 1 { // at most n ticks
		out = append(out, step*time.Duration(i))
	}
	return out
}

// within returns the durations between Low and High, for a logarithmic scale.
func (s Scale) within(ds []time.Duration) []time.Duration {
	return slices.DeleteFunc(slices.Clone(ds), func(d time.Duration) bool { return d <= s.Low || d > s.High })
}

// step returns the distance between the ticks of a linear scale with at most n ticks.
func (s Scale) step(n int) time.Duration {
	for _, d := range steps {
		if s.High/d < time.Duration(n) {
			return d
		}
	}
	return s.High/time.Duration(n) + 1
}

// thin keeps every k-th tick, with the smallest k for which at most n are left.
func thin(ds []time.Duration, n int) []time.Duration {
	var out []time.Duration
	for some := range slices.Chunk(ds, max(1, (len(ds)+n-1)/n)) {
		out = append(out, some[0])
	}
	return out
}

// steps are the round distances between the ticks of a linear scale. A logarithmic scale has its
// ticks at decades, or at steps if it contains fewer than three decades.
var steps, decades = func() (steps, decades []time.Duration) {
	for d := time.Duration(1); d < 10*time.Second; d *= 10 {
		steps = append(steps, d, 2*d, 5*d)
		decades = append(decades, d)
	}
	for _, n := range []int{10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200} {
		steps = append(steps, time.Duration(n)*time.Second)
	}
	decades = append(decades, 10*time.Second, time.Minute, 10*time.Minute, time.Hour, 10*time.Hour)
	for d := day; d < 100_000*day; d *= 10 {
		steps = append(steps, d, 2*d, 5*d)
		decades = append(decades, 4*d)
	}
	return steps, decades
}()
