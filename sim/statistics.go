package sim

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// Estimate is the mean of a measure over seeds, and its uncertainty.
type Estimate struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half"`  // half the width of the 95 % interval; 0 with fewer than two seeds
	N    int     `json:"seeds"` // number of seeds that have a value
}

// estimate returns the estimate from a value for each seed. NaN values are
// ignored.
func estimate(values []float64) Estimate {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	e, n := Estimate{N: len(values)}, float64(len(values))
	for _, v := range values {
		e.Mean += v
	}
	e.Mean /= max(n, 1)
	if e.N < 2 {
		return e
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - e.Mean) * (v - e.Mean)
	}
	e.Half = student(e.N-1) * math.Sqrt(squares/(n-1)/n)
	return e
}

// students are the 97.5 % quantiles of Student's t for 1 to 30 degrees of
// freedom.
var students = [...]float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
}

// student returns the 97.5 % quantile of Student's t. Beyond the table it uses
// the expansion around the normal quantile, which is correct to the third
// decimal there.
func student(freedom int) float64 {
	if freedom <= len(students) {
		return students[freedom-1]
	}
	const z = 1.959964
	return z + (z*z*z+z)/(4*float64(freedom))
}

// fine is the binary logarithm of the number of histogram buckets for each
// doubling of the value: with 128 buckets, the error is below half a per cent.
const fine = 7

// histogram counts values in buckets that grow with the value. Its sums do not
// depend on the order in which values or histograms are added.
type histogram struct {
	counts []int64
	total  int64
}

func (h *histogram) record(v int64) {
	i := slot(uint64(max(v, 0)))
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	h.total++
}

// slot returns the number of the bucket of a value: each value below 256 has its
// own, then there are 128 for each doubling.
func slot(v uint64) int {
	shift := max(bits.Len64(v)-fine-1, 0)
	return shift<<fine + int(v>>shift)
}

// middle returns the value that represents bucket i.
func middle(i int) float64 {
	shift := max(i>>fine-1, 0)
	lo := uint64(i-shift<<fine) << shift
	return float64(lo) + float64(uint64(1)<<shift-1)/2
}

// add adds the counts of another histogram.
func (h *histogram) add(o *histogram) {
	if n := len(o.counts) - len(h.counts); n > 0 {
		h.counts = append(h.counts, make([]int64, n)...)
	}
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
}

// seconds returns the quantile of nanoseconds in seconds; NaN if the histogram is empty.
func (h *histogram) seconds(share float64) float64 {
	v, ok := h.quantile(share)
	if !ok {
		return math.NaN()
	}
	return v / float64(time.Second)
}

// rank returns how many values are below the quantile.
func (h *histogram) rank(share float64) int64 { return min(int64(share*float64(h.total)), h.total-1) }

// quantile returns the value below which this share of the values lies; false if
// the histogram is empty.
func (h *histogram) quantile(share float64) (float64, bool) {
	rank := h.rank(share)
	for i, n := range h.counts {
		if rank -= n; rank < 0 {
			return middle(i), true
		}
	}
	return 0, false
}
