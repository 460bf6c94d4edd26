//go:build !race

package backoff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var bands = []Band{Full, Equal, Wide, PlusMinus(0.1), PlusMinus(0.2), PlusMinus(1), Plus(0.5), {0.25, 0.75}, {1.5, 3}}

// TestDrawsAreUniform checks a million draws of every band, below and at the cap. No
// draw is outside the band, no value is more frequent than chance allows, and the
// draws have a uniform distribution.
func TestDrawsAreUniform(t *testing.T) {
	t.Parallel()
	for _, band := range bands {
		for _, retry := range []int{3, 50} {
			s := Schedule{Kind: Exponential, Base: sec, Cap: 32 * sec, Jitter: band}
			t.Run(fmt.Sprintf("%v/retry %d", band, retry), func(t *testing.T) {
				t.Parallel()
				lo, hi := s.Range(retry, 0)
				checkUniform(t, lo, hi, func(u uint64) time.Duration { return s.Delay(retry, 0, u) })
			})
		}
	}
	t.Run("decorrelated", func(t *testing.T) {
		t.Parallel()
		s := Schedule{Kind: Decorrelated, Base: sec, Cap: 32 * sec}
		lo, hi := s.Range(50, 32*sec)
		checkUniform(t, lo, hi, func(u uint64) time.Duration { return s.Delay(50, 32*sec, u) })
	})
}

func checkUniform(t *testing.T, lo, hi time.Duration, draw func(uint64) time.Duration) {
	t.Helper()
	const n = 1_000_000
	if hi-lo < 1000*n/1000 {
		t.Fatalf("the band %v..%v is too narrow to judge", lo, hi)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draws := make([]time.Duration, n)
	for i := range draws {
		d := draw(rng.Uint64())
		if d < lo || d > hi {
			t.Fatalf("draw %d is %v, outside %v..%v", i, d, lo, hi)
		}
		draws[i] = d
	}
	sample := slices.Clone(draws[:20_000])
	slices.Sort(sample)
	if d, limit := kolmogorov(sample, lo, hi), 1.95/math.Sqrt(float64(len(sample))); d > limit {
		t.Errorf("Kolmogorov-Smirnov distance %.4f, above %.4f (p = 0.001)", d, limit)
	}
	slices.Sort(draws)
	if d, count := mostFrequent(draws); count > 6 {
		t.Errorf("%v was drawn %d times of %d: an atom", d, count, n)
	}
}

// kolmogorov returns the greatest distance between the sorted sample's
// distribution and the uniform one.
func kolmogorov(sorted []time.Duration, lo, hi time.Duration) (most float64) {
	n := float64(len(sorted))
	for i, d := range sorted {
		want := float64(d-lo) / float64(hi-lo)
		most = max(most, math.Abs(want-float64(i)/n), math.Abs(want-float64(i+1)/n))
	}
	return most
}

func mostFrequent(sorted []time.Duration) (most time.Duration, count int) {
	run := 0
	for i, d := range sorted {
		if i > 0 && d == sorted[i-1] {
			run++
		} else {
			run = 1
		}
		if run > count {
			most, count = d, run
		}
	}
	return most, count
}
