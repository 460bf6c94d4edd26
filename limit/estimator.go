package limit

import (
	"math"
	"time"
)

// Estimator finds how many calls a destination can take at once from how long
// they take. It reads no clock and takes no lock: it is the core of [Adaptive],
// exported for simulators. Not for use by several goroutines.
//
// # The algorithm
//
// Up to some number of calls at once, the knee, a destination answers more calls
// in the same time; beyond it, calls only queue. By Little's law, of N calls in
// flight that take r on average, but would take b without a queue, N×(1−b/r)
// are in a queue. The limit grows while that is less than half its square root,
// falls to the knee and a small queue when it is more than the root, and else
// stays: the idea of TCP Vegas. The root, because the noise of the estimate
// grows like it.
//
// It decides once per round of twice as many calls as the limit, at least 20,
// and leaves out the calls that were under way at the last decision, so every
// decision sees what the last one did. Calls that were dropped shrink the limit
// by half their share of the round, as in DCTCP: one timeout in a hundred calls
// hardly matters, a hundred do. The limit does not grow while less than half of
// it is used.
//
// # What goes wrong elsewhere
//
// Everything hangs on b. Vegas takes the smallest time ever seen, which is a
// trap once calls get slower for good, and for calls of varied length is just
// the shortest call. Netflix's Gradient2 takes a long-term average, which a
// lasting queue raises, so that the limit drifts upward under steady overload.
// A minimum over a sliding window drifts the same way when the queue outlasts
// the window. AIMD ignores time: it has to fill every buffer until calls fail.
//
// Here b is measured: every Probe, and never for more than a twentieth of the
// time, the limit falls to half the knee until the queue has drained and some
// calls have been timed. Averages are compared with averages, so it does not
// matter that some calls are short and some long, as long as the mix stays. And
// a b that chance made too small is found out: if a fall of the limit by a
// quarter has not made the calls faster, there was no queue, and b is raised.
type Estimator struct {
	low, high float64 // bounds of the limit
	limit     float64
	base      float64 // b, in nanoseconds; 0 means unknown
	round     round
	peak      round // the round at which the limit began to fall; none while it does not
	probe     probe
}

// minRound is how many calls a round has at least.
const minRound = 20

// round is what is known of the calls that ended since the last decision.
type round struct {
	skip     int // calls still to leave out: they began before the decision
	size     int // calls that make the round full
	ok       int
	dropped  int
	total    time.Duration // of the ok ones
	inflight int           // sum over all
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

// flow is the throughput, in calls per nanosecond.
func (r *round) flow() float64 { return r.concurrency() / r.mean() }

// NewEstimator returns an estimator at its initial limit. Of the configuration
// it uses what concerns the limit: Min, Max, Initial and Probe.
func NewEstimator(cfg AdaptiveConfig) (*Estimator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, misused("NewEstimator", err)
	}
	cfg = cfg.withDefaults()
	e := &Estimator{low: float64(cfg.Min), high: float64(cfg.Max), probe: newProbe(cfg.Probe)}
	e.set(float64(cfg.Initial))
	return e, nil
}

// Limit returns the current limit.
func (e *Estimator) Limit() int { return int(e.limit) }

// SampleAt takes in a call that ended now after rtt and returns the new limit.
// inflight is how many calls were running, this one included; dropped says that
// it failed in a way that overload causes, so that its rtt means nothing.
func (e *Estimator) SampleAt(now, rtt time.Duration, inflight int, dropped bool) int {
	switch {
	case e.probe.hangs(now):
		e.endProbe(now)
	case e.probe.drains(inflight, e.Limit()):
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

// decide ends the round.
func (e *Estimator) decide(now time.Duration) {
	r := e.round
	if e.probe.running {
		e.measure(now, r)
		return
	}
	if r.ok == 0 {
		e.set(e.limit / 2)
		return
	}
	if e.base == 0 {
		e.base = r.mean()
	}
	e.doubt(r)
	before := e.limit
	e.set(e.next(r))
	e.remember(r, e.limit < before)
	if e.probe.due(now, r.mean() < e.base*3/4) && e.used(r) {
		e.startProbe(now, r)
	}
}

// next returns the limit that follows from a round.
func (e *Estimator) next(r round) float64 {
	lost := e.limit / 2 * float64(r.dropped) / float64(r.ok+r.dropped)
	queued, root := e.queued(r), math.Sqrt(e.limit)
	switch {
	case queued > root:
		knee := r.concurrency() - queued
		return min(e.limit-lost, max(e.limit/2, knee+root*3/4))
	case queued < root/2 && e.used(r):
		return e.limit - lost + root/2
	}
	return e.limit - lost
}

// queued estimates how many of the calls in flight were waiting.
func (e *Estimator) queued(r round) float64 { return max(0, r.concurrency()*(1-e.base/r.mean())) }

// used reports whether the limit is what held the calls back, roughly.
func (e *Estimator) used(r round) bool { return 2*r.concurrency() >= e.limit }

// remember notes where a fall of the limit began.
func (e *Estimator) remember(r round, fell bool) {
	switch {
	case !fell:
		e.peak = round{}
	case e.peak.ok == 0:
		e.peak = r
	}
}

// doubt raises a base that is too small. Calls that wait in a queue get faster
// in proportion when there are fewer of them; calls that do not wait stay as
// slow as they are. Left alone, a base too small by a fifth would pull the limit
// down to about 14, where a fifth is a small queue, however high the knee.
func (e *Estimator) doubt(r round) {
	if e.peak.ok == 0 {
		return
	}
	share := r.concurrency() / e.peak.concurrency()
	if share > 0.75 {
		return // too little difference to tell one from the other
	}
	if r.mean() > e.peak.mean()*(1+share)/2 {
		e.base = max(e.base, r.mean())
	}
	e.peak = round{}
}

// set applies a limit and starts the next round.
func (e *Estimator) set(limit float64) {
	before := e.Limit()
	e.limit = min(max(limit, e.low), e.high)
	e.round = round{skip: max(before, e.Limit()), size: max(minRound, 2*e.Limit())}
}
