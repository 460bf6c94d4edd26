package sim

import (
	"math"
	"time"
)

// A run has recovered when at least this share of the calls that begin succeeds
// in each of this many seconds in a row.
const (
	healthyShare   = 0.95
	healthySeconds = 3
)

// recovery returns the seconds from the end of the last failure until the run
// has recovered: until the first of the healthy seconds. A herd, whose calls
// begin all at once, has recovered when that share of them has succeeded. It is
// NaN if the run never recovered.
func (r *recorder) recovery(p *plan) float64 {
	if p.scenario.Writers != nil || p.scenario.Group != nil || p.scenario.Clients.Arrivals == Herd {
		return r.timeToCatchUp(p)
	}
	per := int(int64(time.Second) / step)
	failuresEnd := int((int64(p.failuresEnd) + step - 1) / step)
	for t := failuresEnd; t+healthySeconds*per <= int(int64(p.scenario.Duration)/step); t++ {
		if r.isHealthy(t, per) {
			return seconds(int64(t)*step - int64(p.failuresEnd))
		}
	}
	return math.NaN()
}

// isHealthy reports whether each second from step t on is healthy. A second
// without calls is, but not three of them: all clients may be waiting for an
// answer.
func (r *recorder) isHealthy(t, per int) bool {
	calls := int32(0)
	for s := range healthySeconds {
		began, good := int32(0), int32(0)
		for _, n := range r.byStart[t+s*per : t+(s+1)*per] {
			began += n[0]
			good += n[1]
		}
		if float64(good) < healthyShare*float64(began) {
			return false
		}
		calls += began
	}
	return calls > 0
}

// timeToCatchUp returns when enough of all calls had succeeded.
func (r *recorder) timeToCatchUp(p *plan) float64 {
	good := int64(0)
	for i, n := range r.goodput {
		if good += n; float64(good) >= healthyShare*float64(r.started) {
			return seconds(max(int64(i+1)*r.bucket-int64(p.failuresEnd), 0))
		}
	}
	return math.NaN()
}
