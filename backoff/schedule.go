package backoff

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/decimal"
	"github.com/tideover/tideover/internal/enum"
	"github.com/tideover/tideover/internal/validate"
)

// Kind says how the delays of a schedule grow.
type Kind uint8

// The kinds. The zero Kind is Fixed.
const (
	Fixed        Kind = iota // the same delay every time
	Linear                   // longer by one Base every time
	Exponential              // Factor times longer every time
	Decorrelated             // random between Base and three times the previous delay
)

var kindNames = [...]string{"fixed", "linear", "exponential", "decorrelated"}

// String returns the kind's name in the text form of a policy.
func (k Kind) String() string { return enum.Name(kindNames[:], k, "kind") }

// ParseKind returns the kind with the given name.
func ParseKind(s string) (Kind, error) {
	if k, ok := enum.Parse[Kind](kindNames[:], s); ok {
		return k, nil
	}
	return 0, fmt.Errorf("kind %q: want fixed, linear, exponential or decorrelated", s)
}

// Schedule says how long to wait before each retry. It is comparable, and its
// zero value never waits.
type Schedule struct {
	Kind         Kind
	Base         time.Duration // delay before the first retry
	Cap          time.Duration // no delay exceeds it, jitter included; 0 means no limit
	Factor       float64       // growth per retry of an exponential; 0 means 2
	MaxDoublings int           // an exponential stops growing after this many steps; 0 means no limit
	Jitter       Band          // the zero value adds none
}

// decorrelatedFactor is the longest decorrelated delay as a multiple of the
// previous one.
const decorrelatedFactor = 3

// Validate reports everything that is wrong with the schedule, each problem
// with its field's name.
func (s Schedule) Validate() error {
	var errs validate.Problems
	errs.Check(int(s.Kind) < len(kindNames), "kind: %v is unknown", s.Kind)
	switch {
	case s.Base < 0:
		errs.Add("base: %v is negative", s.Base)
	case s.Base == 0 && s.Kind != Fixed:
		errs.Add("base: must be above zero for %v", s.Kind)
	}
	switch {
	case s.Cap < 0:
		errs.Add("cap: %v is negative", s.Cap)
	case s.Cap > 0 && s.Cap < s.Base:
		errs.Add("cap: %v is below base %v", s.Cap, s.Base)
	case s.Cap == 0 && s.Kind == Decorrelated:
		errs.Add("cap: a decorrelated schedule needs one: set it above zero")
	}
	switch {
	case s.Factor == 0:
	case s.Kind != Exponential:
		errs.Add("factor: only an exponential schedule has one")
	case !(s.Factor >= 1 && s.Factor <= maxFactor): // false for NaN too
		errs.Add("factor: %v is not between 1 and %g", s.Factor, maxFactor)
	}
	switch {
	case s.MaxDoublings < 0:
		errs.Add("max-doublings: %d is negative", s.MaxDoublings)
	case s.MaxDoublings > 0 && s.Kind != Exponential:
		errs.Add("max-doublings: only an exponential schedule has doublings")
	}
	errs = append(errs, s.Jitter.Validate())
	errs.Check(s.Kind != Decorrelated || s.Jitter == None, "jitter: a decorrelated schedule is random already")
	return errors.Join(errs...)
}

// Delay returns the wait before retry number retry, counted from 1. prev is the
// delay that Delay returned for the retry before, 0 for none; only decorrelated
// schedules use it. u is a uniform random number.
func (s Schedule) Delay(retry int, prev time.Duration, u uint64) time.Duration {
	return s.draw(retry, prev, u)
}

// draw is Delay without copying the schedule.
func (s *Schedule) draw(retry int, prev time.Duration, u uint64) time.Duration {
	lo, hi := s.delayRange(retry, prev)
	return pick(lo, hi, u)
}

// Random reports whether delays are random. If not, the caller may pass 0
// instead of a random number.
func (s Schedule) Random() bool {
	return s.Kind == Decorrelated && s.Base < s.Cap || s.Jitter != None
}

// Range returns the shortest and the longest delay that [Schedule.Delay] can
// return for the same arguments.
func (s Schedule) Range(retry int, prev time.Duration) (lo, hi time.Duration) {
	return s.delayRange(retry, prev)
}

// delayRange is Range without copying the schedule.
func (s *Schedule) delayRange(retry int, prev time.Duration) (lo, hi time.Duration) {
	limit := s.Cap
	if limit == 0 {
		limit = math.MaxInt64
	}
	if s.Kind == Decorrelated {
		return s.Base, max(s.Base, min(scale(max(prev, s.Base), decorrelatedFactor), limit))
	}
	d := min(s.baseDelay(retry), limit)
	if s.Jitter.Hi == 0 {
		return d, d
	}
	return s.Jitter.delayRange(d, limit)
}

// Bounds returns the shortest and the longest delay that retry number retry can have,
// for any delays before it.
func (s Schedule) Bounds(retry int) (lo, hi time.Duration) {
	if s.Kind != Decorrelated {
		return s.Range(retry, 0)
	}
	return s.Base, min(timesPower(s.Base, decorrelatedFactor, max(retry, 1)), s.Cap)
}

// Delays yields the number and the delay of each retry, starting at 1, without end.
// It calls random once for each delay. If random is nil, it yields the delays without
// jitter; for a decorrelated schedule, the middle of each delay's range.
func (s Schedule) Delays(random func() uint64) iter.Seq2[int, time.Duration] {
	return func(yield func(int, time.Duration) bool) {
		prev := time.Duration(0)
		for k := 1; ; k++ {
			d := s.mean(k, prev)
			if random != nil {
				d = s.Delay(k, prev, random())
			}
			if !yield(k, d) {
				return
			}
			prev = d
		}
	}
}

// mean returns the delay without jitter; for a decorrelated schedule, the middle
// of its range. prev is the delay of the retry before.
func (s Schedule) mean(retry int, prev time.Duration) time.Duration {
	if s.Kind != Decorrelated {
		s.Jitter = None
	}
	lo, hi := s.delayRange(retry, prev)
	return lo + (hi-lo)/2
}

// baseDelay returns the delay before cap and jitter, for every kind except the
// decorrelated.
func (s *Schedule) baseDelay(retry int) time.Duration {
	k := max(retry, 1) - 1
	switch {
	case s.Kind == Fixed:
		return s.Base
	case s.Kind == Linear:
		return multiply(s.Base, k)
	case s.MaxDoublings > 0:
		k = min(k, s.MaxDoublings)
	}
	if s.Factor == 0 || s.Factor == 2 {
		return timesPowerOf2(s.Base, k)
	}
	return timesPower(s.Base, s.Factor, k)
}

// multiply returns d×(k+1), limited to the largest duration.
func multiply(d time.Duration, k int) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(k)+1)
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

// timesPowerOf2 returns d×2^k, limited to the largest duration.
func timesPowerOf2(d time.Duration, k int) time.Duration {
	if d == 0 || k < bits.LeadingZeros64(uint64(d)) {
		return d << k
	}
	return math.MaxInt64
}

// timesPower returns d×factor^k, limited to the largest duration.
func timesPower(d time.Duration, factor float64, k int) time.Duration {
	return scale(d, min(math.Pow(factor, float64(k)), math.MaxFloat64))
}

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
