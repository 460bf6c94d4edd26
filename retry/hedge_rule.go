package retry

import (
	"fmt"
	"time"

	"github.com/tideover/tideover/limit"
)

// hedgeBurst is how many hedges may follow each other at once.
const hedgeBurst = 10

// HedgeRule says when a second attempt may start beside a slow one. It is the
// core of [Hedger], without clock and goroutines, exported for simulators. It
// may be used by several goroutines.
type HedgeRule struct {
	after time.Duration
	share *limit.Budget // of all calls that may be hedged
	tail  *quantile     // of the latency; nil for a fixed delay
}

// NewHedgeRule returns the rule of a hedge that is not zero.
func NewHedgeRule(h Hedge) (*HedgeRule, error) {
	if h == (Hedge{}) {
		return nil, fmt.Errorf("hedge: there is none")
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

// Begin counts a first attempt, which earns its part of a hedge. It returns how
// long to wait before the second, and false while too little is known of the
// latency to say.
func (r *HedgeRule) Begin() (after time.Duration, ok bool) {
	account := r.share.Begin()
	account.End(true)
	if r.tail == nil {
		return r.after, true
	}
	return r.tail.get()
}

// Take reports whether the share has a hedge left, and takes it.
func (r *HedgeRule) Take() bool {
	account := r.share.Begin()
	return account.Retry()
}

// Answered notes how long an attempt took that succeeded, its hedge included.
func (r *HedgeRule) Answered(took time.Duration) {
	if r.tail != nil {
		r.tail.record(took)
	}
}
