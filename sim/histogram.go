package sim

import (
	"math/bits"
	"slices"
)

// fine is the number of buckets for each doubling, as a power of two: the error
// of a value is at most half of one in 128, less than half a per cent.
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

// slot returns the number of the bucket: exact below 256, then 128 for each
// doubling.
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
	h.counts = slices.Concat(h.counts, make([]int64, max(len(o.counts)-len(h.counts), 0)))
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
}

// quantile returns the value below which the share of all lies; false if there
// are none.
func (h *histogram) quantile(share float64) (float64, bool) {
	rank := min(int64(share*float64(h.total)), h.total-1)
	for i, n := range h.counts {
		if rank -= n; rank < 0 {
			return middle(i), true
		}
	}
	return 0, false
}
