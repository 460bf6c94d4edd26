package limit

import (
	"math"
	"time"
)

// probe is the part of an [Estimator] that times calls without a queue.
type probe struct {
	every time.Duration // between two probes

	next     time.Duration // when the next one is due
	earliest time.Duration // when one may run that something calls for

	running  bool
	draining bool    // more calls are in flight than the lowered limit
	limit    float64 // to return to
	flow     float64 // the throughput before
	began    time.Duration
	patience time.Duration // when to give up
}

const (
	// probeRest is how long no probe runs after one, in times its duration.
	probeRest = 20

	// probePatience is how long a probe may take, in times what it should. Calls
	// that hang must not hold the limit down for as long as they do.
	probePatience = 3
)

// newProbe returns a probe that is due at once: the first average may already
// contain a queue.
func newProbe(every time.Duration) probe {
	return probe{every: every, next: math.MinInt64, earliest: math.MinInt64}
}

// due reports whether to start one. A surprise is reason enough to start early.
func (p *probe) due(now time.Duration, surprise bool) bool {
	return now >= p.next || surprise && now >= p.earliest
}

func (p *probe) hangs(now time.Duration) bool { return p.running && now > p.patience }

// drains reports whether calls from before the probe still fill the destination.
func (p *probe) drains(inflight, limit int) bool {
	p.draining = p.draining && inflight > limit
	return p.draining
}

// startProbe lowers the limit to half the knee. Callers wait a little for it,
// so it runs only while the limit is used; else nothing depends on the base.
func (e *Estimator) startProbe(now time.Duration, r round) {
	e.probe.running, e.probe.began = true, now
	e.probe.limit, e.probe.flow = e.limit, r.flow()
	e.descend(now, (r.concurrency()-e.queued(r))/2, r.mean())
}

// descend starts a measurement at a lower limit. mean is what a call takes now.
func (e *Estimator) descend(now time.Duration, limit, mean float64) {
	e.set(limit)
	e.probe.draining = true
	e.round.skip = 2 * e.Limit()
	e.round.size = max(minRound, 4*e.Limit())
	calls := 1 + float64(e.round.skip+e.round.size)/e.limit // one after the other
	e.probe.patience = now + time.Duration(probePatience*calls*mean)
}

// measure takes in the round of a probe.
func (e *Estimator) measure(now time.Duration, r round) {
	if r.ok > 0 {
		e.base = r.mean()
		// With the throughput of before there must still be a queue: the knee
		// was not where it seemed to be. This happens when the limit starts high.
		if r.flow() > e.probe.flow*3/4 && e.limit >= 2*e.low {
			e.descend(now, e.limit/2, r.mean())
			return
		}
	}
	e.endProbe(now)
}

// endProbe returns to the limit of before.
func (e *Estimator) endProbe(now time.Duration) {
	e.probe.running, e.probe.draining = false, false
	e.probe.earliest = now + probeRest*(now-e.probe.began)
	e.probe.next = max(now+e.probe.every, e.probe.earliest)
	e.peak = round{}
	e.set(e.probe.limit)
}
