package shard

import (
	"slices"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/machine"
)

// waiters are the callers that wait for ends of runs. A caller cancels a wait without the
// owner, which may be unable to answer for hours; canceled waits are swept out later.
type waiters struct {
	byRun   map[machine.ID][]*waiter
	count   int
	sweepAt int // the count at which canceled waits are swept out
}

// minSweep is the smallest count at which canceled waits are swept out.
const minSweep = 1024

// add adds a waiter for the end of a run, unless its wait is canceled.
func (s *waiters) add(id machine.ID, w *waiter) {
	if w.canceled.Load() {
		return
	}
	s.byRun[id] = append(s.byRun[id], w)
	if s.count++; s.count >= max(s.sweepAt, minSweep) {
		s.sweep()
	}
}

// sweep removes canceled waits.
func (s *waiters) sweep() {
	s.count = 0
	for id, list := range s.byRun {
		list = slices.DeleteFunc(list, func(w *waiter) bool { return w.canceled.Load() })
		if s.byRun[id] = list; len(list) == 0 {
			delete(s.byRun, id)
		}
		s.count += len(list)
	}
	s.sweepAt = 2 * s.count
}

// end ends all waits for a run.
func (s *waiters) end(id machine.ID) {
	for _, w := range s.byRun[id] {
		close(w.over)
	}
	s.count -= len(s.byRun[id])
	delete(s.byRun, id)
}

// endAll ends all waits.
func (s *waiters) endAll() {
	for id := range s.byRun {
		s.end(id)
	}
}

// waiter is a caller that waits for the end of a run.
type waiter struct {
	over     chan struct{} // closed when the run is closed, or the owner has stopped
	canceled atomic.Bool   // the caller does not wait any more
}

// waitState is the state of a run that a caller wants to wait for.
type waitState int

const (
	notInMemory  waitState = iota
	stillOpen              // the waiter was added
	endNotStored           // the run is closed by a record that is not stored yet
	endStored
)

// watch adds a waiter for the run if the run is open.
func (s *waiters) watch(st *state, run machine.ID, w *waiter) waitState {
	r, ok := st.m.Run(run)
	switch {
	case !ok:
		return notInMemory
	case !r.Closed():
		s.add(run, w)
		return stillOpen
	case r.Version() > st.seq:
		return endNotStored
	default:
		return endStored
	}
}
