package health

import (
	"math"
	"time"
)

// What a [Score] is made of.
const (
	// Tau is the age at which an observation still counts 1/e, and the time in
	// which the score of a target nobody hears from falls to 1/e.
	Tau = 10 * time.Second

	// FailureCost is the time to first byte that a failure counts as, unless the
	// server asked for a longer wait.
	FailureCost = 5 * time.Second

	// MaxFailureCost is the most that a failure counts as, whatever the server
	// asked for: a header that says a year must not drown all other evidence.
	MaxFailureCost = 300 * time.Second
)

// Score says how costly the next call of a target is likely to be: the mean time
// to first byte, of which recent observations count most, times the calls that
// the target would then have to serve. Lower is better.
//
// The zero Score is that of a target nobody has tried. It is a plain value that
// allocates nothing and locks nothing: one goroutine at a time. [Pool] keeps one
// for each of its targets.
type Score struct {
	sum, weight float64 // of the observations in seconds, as decayed until last
	last        time.Duration
	inflight    int
}

// Begin counts a call that is under way from now on.
func (s *Score) Begin() { s.inflight++ }

// End takes back one Begin. One too many is ignored.
func (s *Score) End() { s.inflight = max(s.inflight-1, 0) }

// InFlight returns the calls under way.
func (s *Score) InFlight() int { return s.inflight }

// ObserveAt counts a call whose first byte came after ttfb.
func (s *Score) ObserveAt(now, ttfb time.Duration) { s.add(now, max(ttfb, 0).Seconds()) }

// FailAt counts a failed call. wait is how long the server asked to be left
// alone, 0 if it did not say.
func (s *Score) FailAt(now, wait time.Duration) {
	s.add(now, min(max(FailureCost, wait), MaxFailureCost).Seconds())
}

// add keeps sum and weight apart, so that observations count by their age and
// not by the gap before them: of two at the same moment each has its half.
func (s *Score) add(now time.Duration, seconds float64) {
	if s.weight > 0 {
		f := fade(now - s.last)
		s.sum *= f
		s.weight *= f
	}
	s.sum += seconds
	s.weight++
	s.last = max(s.last, now)
}

// fade returns what is left after d of anything that decays with [Tau].
func fade(d time.Duration) float64 {
	if d <= 0 {
		return 1
	}
	return math.Exp(-float64(d) / float64(Tau))
}

// MeanAt returns the time to first byte to be expected, in seconds. It fades
// while nothing is heard: a target that was bad and is avoided for it looks
// better the longer ago that was, until it is tried again.
func (s *Score) MeanAt(now time.Duration) float64 {
	if s.weight == 0 {
		return 0
	}
	return s.sum / s.weight * fade(now-s.last)
}

// CostAt returns the score: seconds, never negative.
//
// A target that has never been heard from costs nothing, so that it is tried;
// while that try is under way each further call counts as a failure would, so
// that it is tried once and not by everybody.
func (s *Score) CostAt(now time.Duration) float64 {
	if s.weight == 0 {
		return FailureCost.Seconds() * float64(s.inflight)
	}
	return s.MeanAt(now) * float64(s.inflight+1)
}
