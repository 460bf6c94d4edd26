package timeseries

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Percentiles have the error that the documentation states, whatever the durations are.
func TestErrorOfPercentiles(t *testing.T) {
	t.Parallel()
	lists := map[string][]time.Duration{}
	for n := range 60 { // all durations are the same
		d := time.Duration(float64(time.Millisecond) * math.Exp2(float64(n)/2))
		lists["some of "+d.String()] = slices.Repeat([]time.Duration{d + 1}, 1+n)
	}
	for k, bound := range bounds[:len(bounds)-1] { // the lowest and the highest duration of a bucket
		lists["around "+bound.String()] = []time.Duration{bound + 1, bound + 1, bounds[k+1], bounds[k+1], bounds[k+1]}
	}
	for n := range 200 {
		var list []time.Duration
		most := time.Duration(1) << (20 + rand.IntN(30))
		for range 1 + rand.IntN(300) {
			list = append(list, time.Millisecond+rand.N(most))
		}
		lists[fmt.Sprintf("random list %d up to %v", n, most)] = list
	}
	for name, list := range lists {
		var h histogram
		for _, d := range list {
			h.observe(d)
		}
		slices.Sort(list)
		p := h.percentiles()
		for percent, got := range map[int]time.Duration{50: p.P50, 95: p.P95, 99: p.P99} {
			if want := list[(len(list)*percent+99)/100-1]; !near(got, want) {
				t.Errorf("%s, %d durations: p%d is %v, want about %v", name, len(list), percent, got, want)
			}
		}
	}
}

// Durations outside the buckets have percentiles at their edges.
func TestPercentilesOfVeryShortAndLongDurations(t *testing.T) {
	t.Parallel()
	var short, long histogram
	short.observe(0)
	long.observe(365 * 24 * time.Hour)
	if p := short.percentiles(); p.P50 > time.Millisecond {
		t.Errorf("no time at all: %+v", p)
	}
	if p := long.percentiles(); p.P50 != bounds[len(bounds)-1] {
		t.Errorf("a year: %+v", p)
	}
	if p := new(histogram).percentiles(); p != (Percentiles{}) {
		t.Errorf("no durations: %+v", p)
	}
}
