package shard

import (
	"testing"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Callers may cancel any number of waits while the owner can't answer.
func TestCanceledWaitsAreSweptOut(t *testing.T) {
	t.Parallel()
	s := waiters{byRun: map[machine.ID][]*waiter{}}
	id := func(i int) machine.ID { return machine.NewID(int64(i), uint64(i), 0) }
	patient := &waiter{over: make(chan struct{})}
	s.add(id(0), patient)
	for i := range 100 * minSweep {
		w := &waiter{over: make(chan struct{})}
		s.add(id(i), w)
		w.canceled.Store(true)
		s.add(id(i), w) // as a request does that is handled after the caller has gone
	}
	if s.count > 2*minSweep || len(s.byRun) > 2*minSweep {
		t.Errorf("%d waits for %d runs are kept", s.count, len(s.byRun))
	}
	s.endAll()
	<-patient.over
	if s.count != 0 || len(s.byRun) != 0 {
		t.Errorf("%d waits are left", s.count)
	}
}
