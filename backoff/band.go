package backoff

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/decimal"
)

// Band is the range, as factors of a delay, from which the delay after jitter
// is drawn. The zero Band adds no jitter.
type Band struct {
	Lo float64 // lower edge, 0 or more
	Hi float64 // upper edge, at least Lo
}

// The common bands.
var (
	None  = Band{}         // every delay exactly as computed
	Full  = Band{0, 1}     // between zero and the whole delay: the best spread
	Equal = Band{0.5, 1}   // at least half of the delay
	Wide  = Band{0.5, 1.5} // ±50 %: the meaning of "jitter: true"
)

// maxFactor is the largest upper edge of a band. It is far above any use and
// prevents infinite values.
const maxFactor = 1e6

// PlusMinus returns the band from the fraction f below the delay to the same
// fraction above it: PlusMinus(0.2) is 0.8..1.2.
func PlusMinus(f float64) Band {
	if f == 0 {
		return None
	}
	return Band{roundNoise(1 - f), roundNoise(1 + f)}
}

// Plus returns the band from the delay to the fraction f above it: Plus(0.5) is
// 1..1.5. It never shortens a delay.
func Plus(f float64) Band {
	if f == 0 {
		return None
	}
	return Band{1, roundNoise(1 + f)}
}

// roundNoise removes the rounding error of expressions such as 1-0.33, so that
// a band made from a fraction equals the one written with both edges.
func roundNoise(f float64) float64 {
	r := math.Round(f*1e9) / 1e9
	if math.Abs(r-f) < 1e-12 {
		return r
	}
	return f
}

// Validate reports what is wrong with the band.
func (b Band) Validate() error {
	switch {
	case b == None:
		return nil
	case math.IsNaN(b.Lo) || math.IsNaN(b.Hi):
		return errors.New("jitter: not a number")
	case b.Lo < 0:
		return fmt.Errorf("jitter: %v reaches below zero", b)
	case b.Hi < b.Lo:
		return fmt.Errorf("jitter: %v ends below its start", b)
	case b.Hi > maxFactor:
		return fmt.Errorf("jitter: %v reaches above %g times the delay", b, maxFactor)
	}
	return nil
}

// delayRange returns the shortest and the longest delay that jitter makes of d;
// limit is the cap. The band must not be None, and d must not be above limit.
func (b Band) delayRange(d, limit time.Duration) (lo, hi time.Duration) {
	top := d
	if b.Hi != 1 {
		top = scale(d, b.Hi)
	}
	if top <= limit {
		return min(scale(d, b.Lo), top), top
	}
	if b.Lo >= 1 {
		// A band that only lengthens would shrink to a single point at the cap.
		// It is moved below the cap instead, with the same proportions.
		return min(scale(limit, b.Lo/b.Hi), limit), limit
	}
	return min(scale(d, b.Lo), limit), limit
}

// pick returns a delay between lo and hi, both included. For a uniform u every
// nanosecond is equally likely.
func pick(lo, hi time.Duration, u uint64) time.Duration {
	n, _ := bits.Mul64(u, uint64(hi-lo)+1)
	return lo + time.Duration(n)
}

// scale returns d×f to the nearest nanosecond, limited to the largest duration.
func scale(d time.Duration, f float64) time.Duration {
	// The conversion prevents a fused multiply-add, which would round
	// differently on some processors.
	x := float64(float64(d)*f) + 0.5
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(x)
}

// String returns the band in the text form of a policy: "none", "full",
// "equal", "20%", "+50%" or "0.25..0.75".
func (b Band) String() string {
	switch b {
	case None:
		return "none"
	case Full:
		return "full"
	case Equal:
		return "equal"
	}
	// Use a short form only if it means exactly this band.
	for _, short := range []string{percent(b.Hi - 1), "+" + percent(b.Hi-1)} {
		if p, err := parseEdges(short); err == nil && p == b {
			return short
		}
	}
	return decimal.Format(b.Lo) + ".." + decimal.Format(b.Hi)
}

func percent(f float64) string { return decimal.Format(roundNoise(roundNoise(f)*100)) + "%" }

// ParseBand parses the text form of a band: none, full, equal, true (0.5..1.5),
// 20% (either way), +50% (only longer) or 0.5..1.5 (both edges).
func ParseBand(s string) (Band, error) {
	switch s {
	case "none":
		return None, nil
	case "full":
		return Full, nil
	case "equal":
		return Equal, nil
	case "true":
		return Wide, nil
	}
	b, err := parseEdges(s)
	if err != nil {
		return None, err
	}
	return b, b.Validate()
}

func parseEdges(s string) (Band, error) {
	if lo, hi, ok := strings.Cut(s, ".."); ok {
		l, err1 := decimal.Parse(lo)
		h, err2 := decimal.Parse(hi)
		if err1 != nil || err2 != nil || h == 0 {
			return None, badBand(s)
		}
		return Band{l, h}, nil
	}
	num, ok := strings.CutSuffix(s, "%")
	if !ok {
		return None, badBand(s)
	}
	num, up := strings.CutPrefix(num, "+")
	f, err := decimal.Parse(num)
	switch {
	case err != nil:
		return None, badBand(s)
	case up:
		return Plus(f / 100), nil
	case f > 100:
		return None, fmt.Errorf("jitter: %q reaches below zero: want at most 100%%", s)
	default:
		return PlusMinus(f / 100), nil
	}
}

func badBand(s string) error {
	return fmt.Errorf("jitter: %q: want none, full, equal, true, 20%%, +50%% or 0.5..1.5", s)
}
