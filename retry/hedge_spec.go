package retry

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/decimal"
	"github.com/tideover/tideover/internal/textfmt"
)

// DefaultHedgeShare is the part of all calls that may be hedged when a policy
// does not say.
const DefaultHedgeShare = 0.05

// Hedge says when a second attempt is started beside one that is slow. The zero
// Hedge starts none. Either After or Percentile is set.
type Hedge struct {
	After      time.Duration // a fixed delay
	Percentile float64       // the delay below which so many per cent of calls succeeded lately
	Share      float64       // part of all calls that may be hedged; 0 means DefaultHedgeShare
}

// Validate reports what is wrong with the hedge.
func (h Hedge) Validate() error {
	switch {
	case h == Hedge{}:
		return nil
	case h.After < 0:
		return fmt.Errorf("hedge: %v is negative", h.After)
	case h.After > 0 && h.Percentile != 0:
		return fmt.Errorf("hedge: both a delay (%v) and a percentile (p%v)", h.After, h.Percentile)
	case h.After == 0 && h.Percentile == 0:
		return fmt.Errorf("hedge: a share without a delay")
	case h.After == 0 && !(h.Percentile > 0 && h.Percentile < 100): // true for NaN
		return fmt.Errorf("hedge: p%v is not between p0 and p100", h.Percentile)
	case !(h.Share >= 0 && h.Share <= 1):
		return fmt.Errorf("hedge: a share of %v is not between 0 and 1", h.Share)
	}
	return nil
}

// credit returns what an attempt adds to the budget of hedges: its share, to the
// millionth of a hedge in which budgets count.
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

// perCent returns f×100 without the noise in the last bits.
func perCent(f float64) float64 { return math.Round(f*100*1e9) / 1e9 }
