package retry

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	subBits    = 4              // 16 buckets for each doubling: an error of 3 % at most
	buckets    = 60 << subBits  // enough for every duration
	minSamples = 100            // fewer say nothing about a tail
	refreshAt  = 32             // samples between two looks at the histogram
	forgetAt   = 4 * minSamples // samples after which the old ones count half
)

// quantile tracks a quantile of durations in bounded memory. Older samples
// weigh less and less, so that it follows a service that changes.
type quantile struct {
	of     float64 // 0..1
	value  atomic.Int64
	counts [buckets]atomic.Uint32
	total  atomic.Uint32
	mu     sync.Mutex // held by the one who refreshes
	halved uint32     // how often everything was made to count half
}

// get returns the quantile; false while there are too few samples.
func (q *quantile) get() (time.Duration, bool) {
	v := q.value.Load()
	return time.Duration(v), v > 0
}

func (q *quantile) record(d time.Duration) {
	q.counts[bucketOf(d)].Add(1)
	if n := q.total.Add(1); n >= minSamples && n%refreshAt == 0 && q.mu.TryLock() {
		q.refresh()
		q.mu.Unlock()
	}
}

func (q *quantile) refresh() {
	total := uint32(0)
	for i := range q.counts {
		total += q.counts[i].Load()
	}
	rank, seen := uint32(float64(total)*q.of), uint32(0)
	for i := range q.counts {
		if seen += q.counts[i].Load(); seen > rank {
			q.value.Store(int64(upperEdge(i)))
			break
		}
	}
	if total >= forgetAt {
		q.halve()
	}
}

// halve makes everything count half. An odd one is kept every other time: a lone
// sample that was always kept would stay for ever, and a few of them in the tail
// would become the quantile.
func (q *quantile) halve() {
	q.halved++
	left := uint32(0)
	for i := range q.counts {
		n := q.counts[i].Load()
		keep := (n + (uint32(i)+q.halved)%2) / 2
		q.counts[i].Add(keep - n)
		left += keep
	}
	q.total.Store(left)
}

// bucketOf returns the number of the bucket: exact below 16 ns, then sixteen
// for each doubling.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// upperEdge returns the longest duration of a bucket.
func upperEdge(i int) time.Duration {
	shift := max(i>>subBits-1, 0)
	return time.Duration((uint64(i-shift<<subBits)+1)<<shift - 1)
}
