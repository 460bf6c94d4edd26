package timeseries

import (
	"math"
	"sort"
	"time"
)

// Percentiles of durations, by the nearest rank. They are estimates: from 1 ms to 19 days, they are at
// most 26 % too long or 21 % too short. Longer durations count as 19.7 days.
type Percentiles struct {
	Count         uint64 // number of durations; all percentiles are 0 if it is 0
	P50, P95, P99 time.Duration
}

// buckets is the number of buckets of a histogram.
const buckets = 48

// bounds are the upper bounds of all buckets except the last, which has no bound. Three of them make
// a factor of four; they reach from 1 ms to 19.7 days.
var bounds = func() (list [buckets - 1]time.Duration) {
	for k := range list {
		list[k] = time.Duration(float64(time.Millisecond) * math.Exp2(float64(k)*2/3))
	}
	return list
}()

// histogram counts durations by their length.
type histogram [buckets]uint32

func (h *histogram) observe(d time.Duration) {
	k := sort.Search(len(bounds), func(k int) bool { return d <= bounds[k] })
	h[k] = addUp(h[k], 1)
}

func (h *histogram) add(o *histogram) {
	for k, n := range o {
		h[k] = addUp(h[k], n)
	}
}

func (h *histogram) percentiles() (p Percentiles) {
	for _, n := range h {
		p.Count += uint64(n)
	}
	if p.Count > 0 {
		p.P50, p.P95, p.P99 = h.at(50, p.Count), h.at(95, p.Count), h.at(99, p.Count)
	}
	return p
}

// at returns an estimate of the duration that percent of the durations do not exceed: the middle of the
// first bucket, or the geometric middle of another one, which is the duration that is wrong by the
// smallest factor. It depends on nothing else of the bucket, so that the percentiles of several intervals
// together are never outside of those of the intervals.
func (h *histogram) at(percent, count uint64) time.Duration {
	rank, below := (percent*count+99)/100, uint64(0)
	for k, n := range h {
		if below+uint64(n) < rank {
			below += uint64(n)
			continue
		}
		switch k {
		case 0:
			return bounds[0] / 2
		case len(bounds):
			return bounds[len(bounds)-1]
		}
		return time.Duration(math.Sqrt(float64(bounds[k-1]) * float64(bounds[k])))
	}
	return 0
}
