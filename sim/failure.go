package sim

import "time"

// faults are the combined failures of a service at a moment. Failures affect
// calls independently of each other.
type faults struct {
	outage    bool
	errors    float64       // share of the work that at least one failure affects
	blackhole float64       // share of the calls that at least one failure affects
	slow      []slowFailure // one for each failure
	capacity  float64       // share of the workers left
}

// slowFailure is a failure that slows work down.
type slowFailure struct {
	number        uint64 // of the failure, which selects its random numbers
	share, factor float64
}

var noFaults = faults{capacity: 1}

// updateFaults recomputes the faults of the service that a failure affects.
func (w jobServer) updateFaults(n int) {
	i := max(w.plan.scenario.index(w.plan.scenario.Failures[n].Service), 0)
	w.services[i].faults = faultsAt(&w.plan.scenario, i, time.Duration(w.queue.now))
	w.dispatch(i)
}

// faultsAt returns the faults of service i at the time.
func faultsAt(s *Scenario, i int, now time.Duration) faults {
	t, slow := noFaults, uint64(0)
	for _, f := range s.Failures {
		if max(s.index(f.Service), 0) == i && now >= f.From && (f.Until == 0 || now < f.Until) {
			t.addFailure(f, slow)
		}
		if f.Kind == Slow {
			slow++
		}
	}
	return t
}

// addFailure adds a failure; n is its number among the slow ones.
func (t *faults) addFailure(f Failure, n uint64) {
	switch f.Kind {
	case Outage:
		t.outage = true
	case Errors:
		t.errors += f.Share * (1 - t.errors)
	case BlackHole:
		t.blackhole += f.Share * (1 - t.blackhole)
	case Slow:
		t.slow = append(t.slow, slowFailure{n, f.Share, f.Factor})
	case Capacity: // the share of the workers that is left
		t.capacity = min(t.capacity, f.Share)
	}
}

// slowdown returns the factor by which a job takes longer: the product of the
// factors of all failures that affect it.
func (t *faults) slowdown(job stream) float64 {
	times := 1.0
	for _, s := range t.slow {
		if job.unit(forSlowness, s.number) < s.share {
			times *= s.factor
		}
	}
	return min(times, float64(maxTime)) // finite, so that products stay numbers
}
