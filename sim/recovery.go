package sim

import (
	"math"
	"time"
)

// A run has recovered when so large a share of the calls that begin succeeds in
// each of so many seconds in a row.
const (
	healthyShare   = 0.95
	healthySeconds = 3
)

// recovery returns the seconds from the end of the last failure until the run
// has recovered: the beginning of the healthy stretch. A herd, whose calls begin
// all at once, has recovered when that share of them has succeeded. It is NaN if
// the run never did.
func (r *recorder) recovery(p *plan) float64 {
	if p.scenario.Writers != nil || p.scenario.Group != nil || p.scenario.Clients.Arrivals == Herd {
		return r.caughtUp(p)
	}
	per := int(int64(time.Second) / step)
	settled := int((int64(p.settled) + step - 1) / step)
	for t := settled; t+healthySeconds*per <= int(int64(p.scenario.Duration)/step); t++ {
		if r.healthy(t, per) {
			return seconds(int64(t)*step - int64(p.settled))
		}
	}
	return math.NaN()
}

// healthy reports whether each second from step t on is. A second in which nobody
// calls is, but three of them say nothing: all may be waiting for an answer.
func (r *recorder) healthy(t, per int) bool {
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

// caughtUp returns when enough of all calls had succeeded.
func (r *recorder) caughtUp(p *plan) float64 {
	good := int64(0)
	for i, n := range r.goodput {
		if good += n; float64(good) >= healthyShare*float64(r.calls) {
			return seconds(max(int64(i+1)*r.bucket-int64(p.settled), 0))
		}
	}
	return math.NaN()
}
