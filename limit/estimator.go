package limit

import (
	"math"
	"time"
)

// Estimator finds how many concurrent calls a destination can serve, from their
// durations. It reads no clock and has no lock: it is the core of [Adaptive],
// exported for simulators. Use it in one goroutine at a time.
//
// # The algorithm
//
// Up to some number of concurrent calls, the knee, a destination answers more
// calls in the same time; beyond it, calls only queue. By Little's law, of N
// calls in flight that take r on average, but would take b without a queue,
// N×(1−b/r) are in a queue. The limit grows while that is less than half its
// square root, falls to the knee plus a small queue when it is more than the
// root, and otherwise stays: the idea of TCP Vegas. The root is used because
// the noise of the estimate grows like it.
//
// It decides once per round. A round is twice as many calls as the limit, at
// least 20, and excludes the calls that were in flight at the last decision, so
// that every decision sees the effect of the one before. Dropped calls shrink
// the limit by half their share of the round, as in DCTCP: one timeout in a
// hundred calls hardly matters, a hundred do. The limit does not grow while
// less than half of it is used.
//
// # Why b is measured
//
// Everything depends on b. Vegas uses the smallest duration ever seen, which
// fails once calls get slower for good, and which for calls of varied length is
// just the shortest call. Netflix's Gradient2 uses a long-term average, which a
// lasting queue raises, so that the limit drifts upward under steady overload.
// A minimum over a sliding window drifts the same way when the queue outlasts
// the window. AIMD ignores durations: it has to fill every buffer until calls
// fail.
//
// Here b is measured: every Probe, and never for more than a twentieth of the
// time, the limit falls to half the knee until the queue has drained and some
// calls have been timed. Averages are compared with averages, so short and long
// calls may be mixed as long as the mix stays the same. A b that is too small
// by chance is corrected: if the limit fell by a quarter and the calls did not
// get faster, there was no queue, and b is raised.
type Estimator struct {
	low, high float64 // bounds of the limit
	limit     float64
	base      float64 // b, in nanoseconds; 0 means unknown
	round     round
	peak      round // the round at which the limit began to fall; zero while it does not fall
	probe     probe
}

// minRound is the least number of calls of a round.
const minRound = 20

// round sums up the calls that ended since the last decision.
type round struct {
	skip     int // calls still to exclude: they began before the decision
	size     int // number of calls of a full round
	ok       int
	dropped  int
	total    time.Duration // duration of the ok ones
	inflight int           // sum over all calls
}

func (r *round) add(rtt time.Duration, inflight int, dropped bool) {
	r.inflight += inflight
	if dropped {
		r.dropped++
		return
	}
	r.ok++
	r.total += max(rtt, 1)
}

func (r *round) full() bool           { return r.ok+r.dropped >= r.size }
func (r *round) mean() float64        { return float64(r.total) / float64(r.ok) }
func (r *round) concurrency() float64 { return float64(r.inflight) / float64(r.ok+r.dropped) }

// flow returns the throughput, in calls per nanosecond.
func (r *round) flow() float64 { return r.concurrency() / r.mean() }

// NewEstimator returns an estimator at its initial limit. It uses the fields
// Min, Max, Initial and Probe of the configuration.
func NewEstimator(cfg AdaptiveConfig) (*Estimator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, constructorError("NewEstimator", err)
	}
	cfg = cfg.withDefaults()
	e := &Estimator{low: float64(cfg.Min), high: float64(cfg.Max), probe: newProbe(cfg.Probe)}
	e.setLimit(float64(cfg.Initial))
	return e, nil
}

// Limit returns the current limit.
func (e *Estimator) Limit() int { return int(e.limit) }

// SampleAt records a call that ended now after rtt, and returns the new limit.
// inflight is the number of calls in flight, this one included. dropped means
// that the call failed in a way that overload causes; its rtt is ignored.
func (e *Estimator) SampleAt(now, rtt time.Duration, inflight int, dropped bool) int {
	switch {
	case e.probe.timedOut(now):
		e.endProbe(now)
	case e.probe.isDraining(inflight, e.Limit()):
	case e.round.skip > 0:
		e.round.skip--
	default:
		e.round.add(rtt, inflight, dropped)
		if e.round.full() {
			e.decide(now)
		}
	}
	return e.Limit()
}

// decide evaluates a full round and starts the next one.
func (e *Estimator) decide(now time.Duration) {
	r := e.round
	if e.probe.running {
		e.finishProbeRound(now, r)
		return
	}
	if r.ok == 0 {
		e.setLimit(e.limit / 2)
		return
	}
	if e.base == 0 {
		e.base = r.mean()
	}
	e.correctBase(r)
	before := e.limit
	e.setLimit(e.nextLimit(r))
	e.recordPeak(r, e.limit < before)
	if e.probe.due(now, r.mean() < e.base*3/4) && e.limitUsed(r) {
		e.startProbe(now, r)
	}
}

// nextLimit returns the limit that follows from a round.
func (e *Estimator) nextLimit(r round) float64 {
	lost := e.limit / 2 * float64(r.dropped) / float64(r.ok+r.dropped)
	queued, root := e.queuedCalls(r), math.Sqrt(e.limit)
	switch {
	case queued > root:
		knee := r.concurrency() - queued
		return min(e.limit-lost, max(e.limit/2, knee+root*3/4))
	case queued < root/2 && e.limitUsed(r):
		return e.limit - lost + root/2
	}
	return e.limit - lost
}

// queuedCalls estimates how many of the calls in flight were queued.
func (e *Estimator) queuedCalls(r round) float64 { return max(0, r.concurrency()*(1-e.base/r.mean())) }

// limitUsed reports whether at least half of the limit was used.
func (e *Estimator) limitUsed(r round) bool { return 2*r.concurrency() >= e.limit }

// recordPeak records the round at which a fall of the limit began.
func (e *Estimator) recordPeak(r round, fell bool) {
	switch {
	case !fell:
		e.peak = round{}
	case e.peak.ok == 0:
		e.peak = r
	}
}

// correctBase raises a base that is too small. Calls that queue get faster in
// proportion when there are fewer of them; calls that do not queue stay as slow
// as they are. Without the correction, a base too small by a fifth would lower
// the limit to about 14, where a fifth is a small queue, even if the knee is
// far higher.
func (e *Estimator) correctBase(r round) {
	if e.peak.ok == 0 {
		return
	}
	share := r.concurrency() / e.peak.concurrency()
	if share > 0.75 {
		return // too little difference to distinguish the two cases
	}
	if r.mean() > e.peak.mean()*(1+share)/2 {
		e.base = max(e.base, r.mean())
	}
	e.peak = round{}
}

// setLimit applies a limit and starts the next round.
func (e *Estimator) setLimit(limit float64) {
	before := e.Limit()
	e.limit = min(max(limit, e.low), e.high)
	e.round = round{skip: max(before, e.Limit()), size: max(minRound, 2*e.Limit())}
}
