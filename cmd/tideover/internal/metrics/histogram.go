package metrics

import "time"

// bounds are the upper ends of the buckets of waits, in seconds: from a blink to a
// quota that is back tomorrow.
var bounds = [...]float64{0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}

// histogram counts waits. The tally's lock guards it.
type histogram struct {
	counts [len(bounds) + 1]uint64
	sum    float64
}

func (h *histogram) observe(d time.Duration) {
	s, i := d.Seconds(), 0
	for i < len(bounds) && s > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += s
}

// snapshot returns the counts as Prometheus wants them: each bucket with all that
// are below it.
func (h *histogram) snapshot() (n uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(bounds))
	for i, c := range h.counts {
		if n += c; i < len(bounds) {
			buckets[bounds[i]] = n
		}
	}
	return n, h.sum, buckets
}
