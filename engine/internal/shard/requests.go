package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
)

// requests is how other goroutines reach the owner of a shard.
type requests struct {
	starts chan incoming // starts of runs: they wait while the view is far behind
	others chan incoming // other requests that change the state, and messages of functions
	reads  chan incoming // requests that only read the state
	stop   chan struct{} // closed when the shard is being closed: the owner ends in order
	done   chan struct{} // closed when the owner has returned
	err    error         // why the owner has returned; valid after done is closed
	health *health
}

// incoming is what the owner handles next: a request, or a message of a function's goroutine.
type incoming struct {
	request *request
	message *flow.Message
}

// request is a request to the owner: a start, the result of an attempt, or a function to call.
type request struct {
	start  *machine.Start // the start of a run with the definition def
	def    *machine.Definition
	result *machine.Result      // the end of an attempt
	do     func(Recorder) error // a function that the owner calls, if start and result are nil
	read   bool                 // do only reads the state
	done   chan struct{}        // closed when the request is answered; nil if the sender does not wait
	id     machine.ID           // answer to a start: the id of the run
	err    error                // answer: why the request failed

	existing  bool // answer to a start: the key belongs to the earlier run id
	sameInput bool // answer to a start, if existing: the inputs are the same bytes
}

// Do has the owner call f, and waits until the changes that f records are stored. If the
// context ends first, f may still be called later: then the caller must not read the
// variables that f sets.
func (q *requests) Do(ctx context.Context, f func(Recorder) error) error {
	return q.send(ctx, q.others, &request{do: f, done: make(chan struct{})})
}

// ask has the owner call f, which only reads the state, and returns its result. The owner
// answers also while it can't store anything.
func ask[T any](ctx context.Context, q *requests, f func(Recorder) (T, error)) (v T, err error) {
	return askBy(ctx, q, q.reads, f)
}

// change is ask for an f that may change the state: it returns when the changes are stored, as Do does.
func change[T any](ctx context.Context, q *requests, f func(Recorder) (T, error)) (v T, err error) {
	return askBy(ctx, q, q.others, f)
}

func askBy[T any](ctx context.Context, q *requests, to chan incoming, f func(Recorder) (T, error)) (v T, err error) {
	answer := new(T) // not v: f may set it after askBy has returned
	err = q.send(ctx, to, &request{read: to == q.reads, done: make(chan struct{}), do: func(t Recorder) (err error) {
		*answer, err = f(t)
		return err
	}})
	if err == nil {
		v = *answer
	}
	return v, err
}

// put sends a message to the owner, and does not wait for an answer. It returns false if the owner or the
// sender has stopped before.
func (q *requests) put(in incoming, stopped <-chan struct{}) bool {
	select {
	case q.others <- in:
		return true
	default:
	}
	select {
	case q.others <- in:
		return true
	case <-stopped:
	case <-q.done:
	}
	return false
}

// post has the owner call f, which can't fail, and does not wait for that.
func (q *requests) post(f func(Recorder), stopped <-chan struct{}) {
	q.put(incoming{request: &request{do: func(t Recorder) error { f(t); return nil }}}, stopped)
}

// send sends a request to the owner, and waits for the answer. A shard that is being closed accepts no starts.
func (q *requests) send(ctx context.Context, to chan incoming, r *request) error {
	var stop chan struct{}
	if to == q.starts {
		stop = q.stop
	}
	if !r.read {
		var cancel context.CancelFunc
		if ctx, cancel = q.health.limitStoring(ctx); ctx.Err() != nil {
			cancel()
			return context.Cause(ctx)
		}
		defer cancel()
	}
	select {
	case to <- incoming{request: r}:
	case <-stop:
		return NotAccepted{fmt.Errorf("start %s: %w", r.def.Name, ErrClosed)}
	case <-q.done:
		return NotAccepted{q.closedError()}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-r.done:
		return r.err
	case <-q.done:
		select {
		case <-r.done: // answered before the shard stopped
			return r.err
		default:
			return q.closedError()
		}
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	if to == q.starts && !errors.Is(err, ErrNotStored) {
		// The run may be stored or not. A second start with the same key finds out.
		err = fmt.Errorf("%w before the start was known to be stored", err)
	}
	return err
}

// Done returns a channel that is closed when the shard has stopped.
func (q *requests) Done() <-chan struct{} { return q.done }

// Err returns why the shard has stopped; nil if it has not.
func (q *requests) Err() error {
	select {
	case <-q.done:
		return q.err
	default:
		return nil
	}
}

// closedError returns the error of a request to a shard that has stopped.
func (q *requests) closedError() error {
	if q.err == nil || errors.Is(q.err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, q.err)
}

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
