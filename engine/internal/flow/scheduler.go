package flow

// setRoutine notes the goroutine of a flow.
func (s *scheduler) setRoutine(f *Flow, id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.routine = id
}

// enqueue makes a flow ready.
func (s *scheduler) enqueue(f *Flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, f)
}

// isIdle reports whether no flow can continue after the one that runs.
func (s *scheduler) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)+len(s.gated) == 0
}

// release lets the next flow run.
func (s *scheduler) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runNext()
}

func (s *scheduler) runNext() {
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
		go s.start(b)
		return
	}
	f.wake <- struct{}{}
}

// acquire waits until the flow may run.
func (s *scheduler) acquire(f *Flow) {
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
func (s *scheduler) runLast(f *Flow) {
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
func (s *scheduler) fail(c *call, value any, text string) {
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
func (s *scheduler) stop() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeQuit()
	}
}

// closeQuit makes the goroutines of all branches end. The caller must have locked mu.
func (s *scheduler) closeQuit() {
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
}

// runsIn reports whether the goroutine is the one of the call that runs.
func (s *scheduler) runsIn(id uint64) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil && s.running.routine == id
}

// areInside reports whether the flow, which does not run, waits for branches: one of these uses it.
func (s *scheduler) areInside(f *Flow) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != f && f.inner != nil
}

// failure returns the panic of a branch that has ended the function, and a text that describes it; "" if
// there is none. hasQuit says that the goroutines of all branches had to end. Operations of branches may still
// be running then.
func (s *scheduler) failure() (value any, text string, hasQuit bool) {
	if s == nil {
		return nil, "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.text, s.closed
}
