package sim

import "time"

// trouble is the sum of the failures of a moment. Each strikes for itself,
// whatever others strike too.
type trouble struct {
	outage    bool
	errors    float64    // share that one of the failures strikes at least
	blackhole float64    // the same
	slow      []slowness // one for each failure
	capacity  float64    // share of the workers left
}

// slowness is a failure that makes work slow.
type slowness struct {
	number        uint64 // of the failure, which draws for itself whom it strikes
	share, factor float64
}

var health = trouble{capacity: 1}

// turn recomputes the trouble of the service that a failure is about.
func (w *services) turn(n int) {
	i := max(w.plan.scenario.index(w.plan.scenario.Failures[n].Service), 0)
	w.services[i].trouble = w.plan.scenario.trouble(i, time.Duration(w.queue.now))
	w.dispatch(i)
}

// trouble returns what is wrong with service i at the time.
func (s *Scenario) trouble(i int, now time.Duration) trouble {
	t, slow := health, uint64(0)
	for _, f := range s.Failures {
		if max(s.index(f.Service), 0) == i && f.lasts(now) {
			t.suffer(f, slow)
		}
		if f.Kind == Slow {
			slow++
		}
	}
	return t
}

// lasts reports whether the failure is there at the time.
func (f Failure) lasts(now time.Duration) bool {
	return now >= f.From && (f.Until == 0 || now < f.Until)
}

// suffer adds a failure, the n-th of those that are slow if it is one.
func (t *trouble) suffer(f Failure, n uint64) {
	switch f.Kind {
	case Outage:
		t.outage = true
	case Errors:
		t.errors += f.Share * (1 - t.errors)
	case BlackHole:
		t.blackhole += f.Share * (1 - t.blackhole)
	case Slow:
		t.slow = append(t.slow, slowness{n, f.Share, f.Factor})
	case Capacity: // not so many workers lost, but so many left
		t.capacity = min(t.capacity, f.Share)
	}
}

// stretch returns how many times as long a job takes: the product of the factors
// of all failures that strike it.
func (t *trouble) stretch(job stream) float64 {
	times := 1.0
	for _, s := range t.slow {
		if job.unit(forSlowness, s.number) < s.share {
			times *= s.factor
		}
	}
	return min(times, float64(maxTime)) // whatever it is multiplied with is a number
}
