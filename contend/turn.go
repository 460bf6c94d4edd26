package contend

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turns lets the proposals of one Writer that would only conflict with each other make their
// attempts one after the other. A proposal that has lost waits for its turn. The first attempt of a
// proposal does not, unless another proposal has the turn and the last such attempt was lost: a
// Writer may be used for many values, and those without conflicts must not wait for one that has
// them, or at most once.
type turns struct {
	mu        sync.Mutex
	taken     bool
	waiting   []chan struct{} // in the order of arrival; each is made by its waiter, so that a bubble of synctest owns it
	contested bool            // the last first attempt that did not wait was lost
}

// longestTurn is how many attempts a proposal waits for, at most. After that it makes its attempt
// anyway: an attempt that hangs must not hold up the proposals for other values.
const longestTurn = 200

// enter waits for the turn, if the attempt needs one. It returns a function to call with the result
// of the attempt, or nil if the context has ended.
func (t *turns) enter(ctx context.Context, first bool, pace time.Duration) (leave func(lost bool)) {
	t.mu.Lock()
	switch {
	case first && !(t.contested && t.taken):
		t.mu.Unlock()
		return t.note
	case !t.taken:
		t.taken = true
		t.mu.Unlock()
		return t.pass
	}
	turn := make(chan struct{}, 1)
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()

	limit := time.NewTimer(longestTurn * max(pace, time.Millisecond))
	defer limit.Stop()
	select {
	case <-turn:
		return t.pass
	case <-limit.C:
		if leave = func(bool) {}; first {
			leave = t.note
		}
	case <-ctx.Done():
	}
	if !t.withdraw(turn) { // it was its turn just now
		t.pass(false)
	}
	return leave
}

// note records the result of a first attempt that did not wait.
func (t *turns) note(lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contested = lost
}

// pass gives the turn to the proposal that has waited longest.
func (t *turns) pass(bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken = len(t.waiting) > 0; t.taken {
		t.waiting[0] <- struct{}{}
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
}

// withdraw removes a proposal that no longer waits. It returns false if it has the turn.
func (t *turns) withdraw(turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, turn)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}
