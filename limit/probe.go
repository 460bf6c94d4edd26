package limit

import (
	"math"
	"time"
)

// probe is the part of an [Estimator] that measures how long calls take without
// a queue.
type probe struct {
	every time.Duration // interval between probes

	next     time.Duration // when the next one is due
	earliest time.Duration // from then on, calls much faster than the base start a probe early

	running  bool
	draining bool    // more calls are in flight than the lowered limit
	limit    float64 // the limit before the probe, restored after it
	flow     float64 // the throughput before the probe
	began    time.Duration
	expires  time.Duration // when the probe is abandoned
}

const (
	// probeRest is the least pause after a probe, as a multiple of its
	// duration.
	probeRest = 20

	// probeTimeout is how long a probe may take, as a multiple of its expected
	// duration. Calls that hang must not keep the limit low for as long as they
	// hang.
	probeTimeout = 3
)

// newProbe returns a probe that is due at once: the first average may already
// contain queueing time.
func newProbe(every time.Duration) probe {
	return probe{every: every, next: math.MinInt64, earliest: math.MinInt64}
}

// due reports whether to start a probe. surprise means that the calls of a round
// were much faster than the base; then a probe may start early.
func (p *probe) due(now time.Duration, surprise bool) bool {
	return now >= p.next || surprise && now >= p.earliest
}

// timedOut reports whether the probe that is running takes too long.
func (p *probe) timedOut(now time.Duration) bool { return p.running && now > p.expires }

// isDraining reports whether calls from before the probe are still in flight.
func (p *probe) isDraining(inflight, limit int) bool {
	p.draining = p.draining && inflight > limit
	return p.draining
}

// startProbe lowers the limit to half the knee. That delays callers a little, so
// probes run only while callers use the limit; otherwise the base has no effect
// on them anyway.
func (e *Estimator) startProbe(now time.Duration, r round) {
	e.probe.running, e.probe.began = true, now
	e.probe.limit, e.probe.flow = e.limit, r.flow()
	e.descend(now, (r.concurrency()-e.queuedCalls(r))/2, r.mean())
}

// descend lowers the limit and starts a measurement. mean is the current duration of
// a call in nanoseconds.
func (e *Estimator) descend(now time.Duration, limit, mean float64) {
	e.setLimit(limit)
	e.probe.draining = true
	e.round.skip = 2 * e.Limit()
	e.round.size = max(minRound, 4*e.Limit())
	calls := 1 + float64(e.round.skip+e.round.size)/e.limit // the longest sequence of calls, one after the other
	e.probe.expires = now + time.Duration(probeTimeout*calls*mean)
}

// finishProbeRound evaluates a full round of a probe.
func (e *Estimator) finishProbeRound(now time.Duration, r round) {
	if r.ok > 0 {
		e.base = r.mean()
		// If the throughput has hardly fallen there must still be a queue: the
		// knee is lower than estimated. This happens when the limit starts
		// high.
		if r.flow() > e.probe.flow*3/4 && e.limit >= 2*e.low {
			e.descend(now, e.limit/2, r.mean())
			return
		}
	}
	e.endProbe(now)
}

// endProbe ends the probe, restores the limit and schedules the next probe.
func (e *Estimator) endProbe(now time.Duration) {
	e.probe.running, e.probe.draining = false, false
	e.probe.earliest = now + probeRest*(now-e.probe.began)
	e.probe.next = max(now+e.probe.every, e.probe.earliest)
	e.peak = round{}
	e.setLimit(e.probe.limit)
}
