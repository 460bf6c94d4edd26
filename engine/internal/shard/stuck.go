package shard

import (
	"fmt"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/machine"
)

type attemptKey struct {
	run  machine.ID
	step int
}

// stuckHandlers are the handlers and functions that have not returned after their attempts were given up.
type stuckHandlers struct {
	requests *requests
	known    map[stuckHandler]bool // true if the handler returned before the owner knew that it was stuck
	now      atomic.Int64          // number of stuck handlers that have not returned
}

// stuckHandler identifies an attempt that failed as stuck while its handler was running.
type stuckHandler struct {
	attemptKey
	number int
}

// note notes that a handler is stuck, or that a stuck handler has returned. It is called
// once for each, in any order; the second call removes the handler.
func (s *stuckHandlers) note(h stuckHandler, returned bool) {
	if _, known := s.known[h]; known {
		delete(s.known, h)
	} else {
		s.known[h] = returned
	}
}

// returned notes that a stuck handler has returned. The goroutine of the handler calls
// it.
func (s *stuckHandlers) returned(h stuckHandler) {
	s.now.Add(-1)
	s.requests.post(func(Recorder) { s.note(h, true) }, nil)
}

// check returns an error if a stuck handler of the run has not returned: the run must not
// continue beside it.
func (s *stuckHandlers) check(id machine.ID) error {
	for h, returned := range s.known {
		if h.run == id && !returned {
			return fmt.Errorf("%w: an attempt of run %s was given up, but its handler has not returned; wait until it does, or restart the process in which it runs", machine.ErrState, id)
		}
	}
	return nil
}
