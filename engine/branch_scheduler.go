package engine

import (
	"sync"

	"github.com/tideover/tideover/engine/internal/goroutine"
)

// branchScheduler lets one goroutine of a call run at a time. The others wait: for an operation, for
// the end of their branches, or for their turn.
//
// Branches begin no operation while another one can still continue with stored results: it may
// find that it has failed, and then no branch begins an operation. So a function that is called
// again begins none that it has not begun before.
type branchScheduler struct {
	quit chan struct{} // closed when the goroutines of all branches must end

	mu      sync.Mutex
	running *Flow   // nil if all wait
	ready   []*Flow // can continue, the next one first
	gated   []*Flow // can continue when no other one is ready
	closed  bool    // quit is closed
	text    string  // how a branch has ended the function; "" if none has
	value   any     // of its panic
}

// setRoutine notes the goroutine of a flow, which is the current one.
func (s *branchScheduler) setRoutine(f *Flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.routine = goroutine.ID()
}

// enqueue makes a flow ready.
func (s *branchScheduler) enqueue(f *Flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, f)
}

// isIdle reports whether no flow can continue after the one that runs.
func (s *branchScheduler) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)+len(s.gated) == 0
}

// release lets the next flow run.
func (s *branchScheduler) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runNext()
}

func (s *branchScheduler) runNext() {
	if len(s.ready) == 0 {
		s.ready, s.gated = s.gated, s.ready
		hold(s.ready)
	}
	if len(s.ready) == 0 {
		s.running = nil
		return
	}
	f := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	s.running = f
	if b := f.branch; b != nil && !b.started {
		b.started = true
		go b.main()
		return
	}
	f.wake <- struct{}{}
}

// acquire waits until the flow may run.
func (s *branchScheduler) acquire(f *Flow) {
	s.mu.Lock()
	if s.running == nil {
		s.running = f
		s.mu.Unlock()
		return
	}
	s.ready = append(s.ready, f)
	s.mu.Unlock()
	<-f.wake
}

// runLast lets all flows run first that are ready, and those that wait in runLast longer.
func (s *branchScheduler) runLast(f *Flow) {
	s.mu.Lock()
	if len(s.ready)+len(s.gated) == 0 {
		s.mu.Unlock()
		hold([]*Flow{f})
		return
	}
	s.gated = append(s.gated, f)
	s.runNext()
	s.mu.Unlock()
	<-f.wake
}

// fail notes that a branch has ended the function, and makes the others end. While the run undoes
// its operations, those that have begun are waited for: their undos need that.
func (s *branchScheduler) fail(c *flowCall, value any, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == "" {
		s.value, s.text = value, text
	}
	if !c.undoing.Load() {
		s.closeQuit()
	}
}

// stop makes the goroutines of all branches end.
func (s *branchScheduler) stop() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeQuit()
	}
}

// closeQuit makes the goroutines of all branches end. The caller must have locked mu.
func (s *branchScheduler) closeQuit() {
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
}

// runsOther reports whether the current goroutine, which is that of a function or a branch, is the
// one of the call that runs, with another flow than f.
func (s *branchScheduler) runsOther(f *Flow) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil && s.running != f && s.running.routine == goroutine.ID()
}

// failure returns the panic of a branch that has ended the function, and a text that describes it; "" if
// there is none.
func (s *branchScheduler) failure() (value any, text string) {
	if s == nil {
		return nil, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.text
}

// hasQuit reports whether the goroutines of all branches had to end. Operations of branches may
// still be running then.
func (s *branchScheduler) hasQuit() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
