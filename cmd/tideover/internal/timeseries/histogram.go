package timeseries

import (
	"math"
	"sort"
	"time"
)

// Percentiles of durations. They are estimates: at most about a quarter too long or too short.
type Percentiles struct {
	Count         uint64 // number of durations; all percentiles are 0 if it is 0
	P50, P95, P99 time.Duration
}

// buckets is the number of buckets of a histogram.
const buckets = 48

// bounds are the upper bounds of all buckets except the last, which has no bound. Three of them make
// a factor of four; they reach from 1 ms to 21 days.
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
		p.P50, p.P95, p.P99 = h.at(0.50, p.Count), h.at(0.95, p.Count), h.at(0.99, p.Count)
	}
	return p
}

// at returns the duration that the share of the durations does not exceed. It assumes that the
// durations of a bucket are spread evenly on a logarithmic scale.
func (h *histogram) at(share float64, count uint64) time.Duration {
	rank, below := share*float64(count), 0.0
	for k, n := range h {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		part := (rank - below) / float64(n)
		switch k {
		case 0:
			return time.Duration(part * float64(bounds[0]))
		case len(bounds):
			return bounds[len(bounds)-1]
		}
		low, high := float64(bounds[k-1]), float64(bounds[k])
		return time.Duration(low * math.Pow(high/low, part))
	}
	return 0
}
