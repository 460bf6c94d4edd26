package retry

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/decimal"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
)

// DefaultHedgeShare is the share of calls that may be hedged if a hedge does not
// set one.
const DefaultHedgeShare = 0.05

// Hedge says when to start a second attempt beside a slow one. The zero Hedge
// starts none. Otherwise set either After or Percentile.
type Hedge struct {
	After      time.Duration // start the second attempt after this time
	Percentile float64       // or after the time within which this per cent of recent calls succeeded
	Share      float64       // share of calls that may be hedged, 0..1; 0 means DefaultHedgeShare
}

// Validate returns the first problem of the hedge.
func (h Hedge) Validate() error {
	switch {
	case h == Hedge{}:
		return nil
	case h.After < 0:
		return fmt.Errorf("hedge: %v is negative", h.After)
	case h.After > 0 && h.Percentile != 0:
		return fmt.Errorf("hedge: set either a delay or a percentile, not both (%v and p%v)", h.After, h.Percentile)
	case h.After == 0 && h.Percentile == 0:
		return fmt.Errorf("hedge: a share requires a delay or a percentile")
	case h.After == 0 && !(h.Percentile > 0 && h.Percentile < 100): // true for NaN
		return fmt.Errorf("hedge: p%v is not between p0 and p100", h.Percentile)
	case !(h.Share >= 0 && h.Share <= 1):
		return fmt.Errorf("hedge: a share of %v is not between 0 and 1", h.Share)
	}
	return nil
}

// credit returns how much of a hedge one call adds to the budget of hedges: the
// share, rounded to the millionth, which is the unit of budgets.
func (h Hedge) credit() float64 {
	return max(math.Round(cmp.Or(h.Share, DefaultHedgeShare)*1e6), 1) / 1e6
}

// String returns the hedge in the text form of a policy: "none", "200ms",
// "p95" or "p95/5%".
func (h Hedge) String() string {
	if h == (Hedge{}) {
		return "none"
	}
	s := textfmt.PolicyDuration(h.After)
	if h.Percentile != 0 {
		s = "p" + decimal.Format(h.Percentile)
	}
	if p := perCent(h.Share); p/100 == h.Share && p != 0 {
		s += "/" + decimal.Format(p) + "%"
	} else if h.Share != 0 {
		s += "/" + decimal.Format(h.Share)
	}
	return s
}

func parseHedge(s string) (Hedge, error) {
	if s == "none" {
		return Hedge{}, nil
	}
	var h Hedge
	var err error
	delay, share, shared := strings.Cut(s, "/")
	if pct, ok := strings.CutPrefix(delay, "p"); ok {
		h.Percentile, err = decimal.Parse(pct)
	} else {
		h.After, err = ParseDuration(delay)
	}
	if err != nil {
		return Hedge{}, fmt.Errorf("hedge %q: want none, a delay such as 200ms, or p95; with /5%% for a share of all calls", s)
	}
	if shared {
		num, ok := strings.CutSuffix(share, "%")
		h.Share, err = decimal.Parse(num)
		if ok {
			h.Share /= 100
		}
		if err != nil || h.Share == 0 || h.Share > 1 {
			return Hedge{}, fmt.Errorf("hedge %q: the share of calls must be above 0%% and at most 100%%, as in p95/5%%", s)
		}
	}
	if h.After == 0 && h.Percentile == 0 {
		return Hedge{}, fmt.Errorf("hedge %q: the delay must be above zero; write none for no hedge", s)
	}
	return h, nil
}

// perCent returns f×100, rounded to hide the error of floating-point numbers.
func perCent(f float64) float64 { return math.Round(f*100*1e9) / 1e9 }

// hedgeBurst is how many hedges may start in quick succession before the share limits
// them.
const hedgeBurst = 10

// HedgeRule decides when a second attempt may start beside a slow one. It is the
// core of [Hedger], without clock and goroutines, exported for simulators. It is
// safe for concurrent use.
type HedgeRule struct {
	after time.Duration
	share *limit.Budget // limits the share of calls that may be hedged
	tail  *quantile     // latency of recent calls; nil for a fixed delay
}

// NewHedgeRule returns the rule of a hedge. A zero or invalid hedge is an error.
func NewHedgeRule(h Hedge) (*HedgeRule, error) {
	if h == (Hedge{}) {
		return nil, fmt.Errorf("hedge: neither a delay nor a percentile is set")
	}
	if err := h.Validate(); err != nil {
		return nil, err
	}
	share, err := limit.NewBudget(limit.Refund(1, h.credit(), hedgeBurst))
	if err != nil {
		return nil, fmt.Errorf("hedge: %w", err)
	}
	r := &HedgeRule{after: h.After, share: share}
	if h.Percentile > 0 {
		r.tail = &quantile{of: h.Percentile / 100}
	}
	return r, nil
}

// Begin counts a first attempt, which adds to the budget of hedges. It returns how
// long to wait before the second attempt. ok is false if there are too few latency
// samples to compute that.
func (r *HedgeRule) Begin() (after time.Duration, ok bool) {
	account := r.share.Begin()
	account.End(true)
	if r.tail == nil {
		return r.after, true
	}
	return r.tail.get()
}

// Take reports whether the budget of hedges allows a second attempt, and pays for it
// if so.
func (r *HedgeRule) Take() bool {
	account := r.share.Begin()
	return account.Retry()
}

// Answered records how long a successful attempt took, with or without a hedge.
func (r *HedgeRule) Answered(took time.Duration) {
	if r.tail != nil {
		r.tail.record(took)
	}
}

const (
	subBits    = 4              // 16 buckets for each doubling: an error of 3 % at most
	buckets    = 60 << subBits  // enough for every duration
	minSamples = 100            // fewer do not describe the tail of the latency
	refreshAt  = 32             // samples between two computations of the quantile
	forgetAt   = 4 * minSamples // number of samples at which all counts are halved
)

// quantile tracks a quantile of durations in bounded memory. Older samples
// weigh less and less, so that it follows a service that changes.
type quantile struct {
	of     float64 // 0..1
	value  atomic.Int64
	counts [buckets]atomic.Uint32
	total  atomic.Uint32
	mu     sync.Mutex // held during a refresh
	halved uint32     // number of times that halve was called
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

// halve halves the count of every bucket. An odd count is rounded up and down in
// turn: if it were always rounded up, a single sample would never disappear, and a few
// of them in the tail would become the quantile.
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

// bucketOf returns the index of the duration's bucket. Durations below 16 ns have a
// bucket each; above, there are 16 buckets for each doubling.
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
