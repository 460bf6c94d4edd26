package sim

import (
	"math"
	"slices"
	"testing"
)

// distance is the Kolmogorov-Smirnov statistic, times the root of n: below 1.95
// in 999 of 1000 samples that have the distribution.
func distance(samples []float64, below func(float64) float64) float64 {
	slices.Sort(samples)
	n, worst := float64(len(samples)), 0.0
	for i, x := range samples {
		f := below(x)
		worst = max(worst, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
	}
	return worst * math.Sqrt(n)
}

func TestDistributions(t *testing.T) {
	bell := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	tests := []struct {
		name  string
		draw  func(u uint64) float64
		below func(float64) float64
	}{
		{"uniform", unit, func(x float64) float64 { return x }},
		{"exponential", exponential, func(x float64) float64 { return 1 - math.Exp(-x) }},
		{"normal", normal, bell},
		{"lognormal", func(u uint64) float64 { return lognormal(u, 0.7) }, func(x float64) float64 { return bell((math.Log(x) + 0.245) / 0.7) }},
	}
	for _, tt := range tests {
		for way, source := range map[string]func(i uint64) uint64{
			"along a stream": func(i uint64) uint64 { return newStream(3).draw(forService, i) },
			"across clients": func(i uint64) uint64 { return newStream(3).derive(forClient, i).draw(forService, 0) },
			"across seeds":   func(i uint64) uint64 { return newStream(i).draw(forService, 0) },
		} {
			samples := make([]float64, 20_000)
			for i := range samples {
				samples[i] = tt.draw(source(uint64(i)))
			}
			if d := distance(samples, tt.below); d > 1.95 {
				t.Errorf("%s %s: distance %.2f", tt.name, way, d)
			}
			if n := len(slices.Compact(samples)); n != 20_000 {
				t.Errorf("%s %s: %d values are repeated", tt.name, way, 20_000-n)
			}
		}
	}
}

func TestStreamsAreIndependent(t *testing.T) {
	a, b := newStream(1).derive(forClient, 1), newStream(1).derive(forClient, 2)
	sum := 0.0
	const n = 20_000
	for i := range uint64(n) {
		sum += (a.unit(forBackoff, i) - 0.5) * (b.unit(forBackoff, i) - 0.5)
		if a.draw(forBackoff, i) == a.draw(forService, i) {
			t.Fatal("two purposes have the same number")
		}
	}
	if r := sum / n * 12 * math.Sqrt(n); math.Abs(r) > 3.5 {
		t.Errorf("the streams of two clients are correlated: %.2f deviations", r)
	}
}

func TestBelowIsFairAndWithin(t *testing.T) {
	var counts [7]int
	for i := range uint64(70_000) {
		counts[newStream(9).below(forClient, i, 7)]++
	}
	for i, n := range counts {
		if math.Abs(float64(n)-10_000) > 400 {
			t.Errorf("%d came %d times of 70000, want 10000", i, n)
		}
	}
}
