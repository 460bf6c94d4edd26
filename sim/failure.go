package sim

import "time"

// trouble is the sum of the failures of a moment.
type trouble struct {
	outage    bool
	errors    float64 // share
	blackhole float64 // share
	slow      float64 // share
	factor    float64 // of what is slow
	capacity  float64 // share of the workers left
}

var health = trouble{capacity: 1, factor: 1}

// turn recomputes the trouble of the service that a failure is about.
func (w *services) turn(n int) {
	i := max(w.plan.scenario.index(w.plan.scenario.Failures[n].Service), 0)
	t := health
	for _, f := range w.plan.scenario.Failures {
		if max(w.plan.scenario.index(f.Service), 0) == i && f.lasts(time.Duration(w.queue.now)) {
			t.suffer(f)
		}
	}
	w.services[i].trouble = t
	w.dispatch(i)
}

// lasts reports whether the failure is there at the time.
func (f Failure) lasts(now time.Duration) bool {
	return now >= f.From && (f.Until == 0 || now < f.Until)
}

// suffer adds a failure. Of several of a kind the worst counts.
func (t *trouble) suffer(f Failure) {
	switch f.Kind {
	case Outage:
		t.outage = true
	case Errors:
		t.errors = max(t.errors, f.Share)
	case BlackHole:
		t.blackhole = max(t.blackhole, f.Share)
	case Slow:
		t.slow, t.factor = max(t.slow, f.Share), max(t.factor, f.Factor)
	case Capacity:
		t.capacity = min(t.capacity, f.Share)
	}
}
