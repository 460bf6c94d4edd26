package health

import (
	"math"
	"time"
)

// Constants of a [Score].
const (
	// Tau is the time constant of the decay: an observation of this age counts
	// 1/e, and the score of a target without new observations falls to 1/e in
	// this time.
	Tau = 10 * time.Second

	// FailureCost is the time to first byte that a failure counts as, unless
	// the server's Retry-After is longer.
	FailureCost = 5 * time.Second

	// MaxFailureCost limits what a failure counts as: a Retry-After of a year
	// must not outweigh all other observations.
	MaxFailureCost = 300 * time.Second
)

// Score estimates how costly the next call of a target is: the mean time to
// first byte (recent observations count most) times the number of calls that
// the target would then have to serve. Lower is better.
//
// The zero Score belongs to a target without observations. A Score is a plain
// value that allocates nothing and has no lock: use it in one goroutine at a
// time. [Pool] has one for each of its targets.
type Score struct {
	sum, weight float64 // sum of the observations in seconds, and their number, both decayed up to the time last
	last        time.Duration
	inflight    int
}

// Begin counts a call as in flight.
func (s *Score) Begin() { s.inflight++ }

// End reverts one Begin. A surplus End is ignored.
func (s *Score) End() { s.inflight = max(s.inflight-1, 0) }

// InFlight returns the number of calls in flight.
func (s *Score) InFlight() int { return s.inflight }

// ObserveAt counts a call whose first byte arrived after ttfb.
func (s *Score) ObserveAt(now, ttfb time.Duration) { s.add(now, max(ttfb, 0).Seconds()) }

// FailAt counts a failed call. wait is the server's Retry-After, 0 if it sent
// none.
func (s *Score) FailAt(now, wait time.Duration) {
	s.add(now, min(max(FailureCost, wait), MaxFailureCost).Seconds())
}

// add decays and updates sum and weight separately. So an observation counts by its
// age and not by the gap before it: two observations at the same moment count
// equally.
func (s *Score) add(now time.Duration, seconds float64) {
	if s.weight > 0 {
		f := decay(now - s.last)
		s.sum *= f
		s.weight *= f
	}
	s.sum += seconds
	s.weight++
	s.last = max(s.last, now)
}

// decay returns the factor by which a value shrinks in the time d; see [Tau].
func decay(d time.Duration) float64 {
	if d <= 0 {
		return 1
	}
	return math.Exp(-float64(d) / float64(Tau))
}

// MeanAt returns the expected time to first byte in seconds. It falls while
// there are no observations: a target that was slow and is avoided looks better
// as time passes, until it is tried again.
func (s *Score) MeanAt(now time.Duration) float64 {
	if s.weight == 0 {
		return 0
	}
	return s.sum / s.weight * decay(now-s.last)
}

// CostAt returns the score: seconds, never negative.
//
// A target without observations costs nothing while it has no call in flight,
// so that it is tried. While that first call is in flight each further call
// counts like a failure, so that not all callers try it at once.
func (s *Score) CostAt(now time.Duration) float64 {
	if s.weight == 0 {
		return FailureCost.Seconds() * float64(s.inflight)
	}
	return s.MeanAt(now) * float64(s.inflight+1)
}
