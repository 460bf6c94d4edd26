package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestEstimate(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		values []float64
		want   Estimate
	}{
		{nil, Estimate{}},
		{[]float64{nan}, Estimate{}},
		{[]float64{5, nan}, Estimate{Mean: 5, N: 1}},
		{[]float64{1, 3}, Estimate{Mean: 2, Half: 12.706, N: 2}},
		{[]float64{1, nan, 2, 3}, Estimate{Mean: 2, Half: 4.303 / math.Sqrt(3), N: 3}},
	}
	for _, tt := range tests {
		got := estimate(tt.values)
		if got.Mean != tt.want.Mean || math.Abs(got.Half-tt.want.Half) > 1e-9 || got.N != tt.want.N {
			t.Errorf("estimate(%v) = %+v, want %+v", tt.values, got, tt.want)
		}
	}
}

func TestStudent(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.706, 10: 2.228, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980, 1_000_000: 1.960} {
		if got := student(freedom); math.Abs(got-want) > 0.002 {
			t.Errorf("student(%d) = %v, want %v", freedom, got, want)
		}
	}
}

func TestIntervalsContainTheTruthAsOftenAsTheySay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for range 4000 {
		values := make([]float64, 5)
		for i := range values {
			values[i] = 7 + r.NormFloat64()
		}
		if e := estimate(values); math.Abs(e.Mean-7) <= e.Half {
			hits++
		}
	}
	if share := float64(hits) / 4000; math.Abs(share-0.95) > 0.012 {
		t.Errorf("%v of the intervals contain the mean, want 0.95", share)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var values []int64
	var a, b histogram
	for i := range 100_000 {
		v := int64(r.ExpFloat64() * 1e9)
		values = append(values, v)
		if i%2 == 0 {
			a.record(v)
		} else {
			b.record(v)
		}
	}
	a.add(&b)
	slices.Sort(values)
	for _, share := range []float64{0, 0.01, 0.5, 0.99, 0.999, 1} {
		want := float64(values[min(int(share*100_000), 99_999)])
		got, ok := a.quantile(share)
		if !ok || math.Abs(got-want) > want*0.005+1 {
			t.Errorf("quantile(%v) = %v, %v, want %v", share, got, ok, want)
		}
	}
	if _, ok := new(histogram).quantile(0.5); ok {
		t.Error("an empty histogram has a median")
	}
	points := a.cdf()
	if !slices.IsSortedFunc(points, func(p, q Point) int { return int(math.Copysign(1, p.Seconds-q.Seconds)) }) {
		t.Error("the distribution is not sorted")
	}
}
