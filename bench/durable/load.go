package durable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tally counts handler calls and closes all at the n-th call.
type tally struct {
	n     int64
	taken atomic.Int64 // number of elements of late that are used
	count atomic.Int64
	all   chan struct{}
	late  []time.Duration // lateness of each call, in order of arrival; nil if tasks have no due time
}

func newTally(n int, late bool) *tally {
	t := &tally{n: int64(n), all: make(chan struct{})}
	if late {
		t.late = make([]time.Duration, n)
	}
	return t
}

// handle is the handler of a task: it counts the call, and records how late it is if
// tasks have a due time.
func (t *tally) handle(p Payload) {
	now := time.Now()
	t.recordCall(now.Sub(p.due()))
}

func (t *tally) recordCall(late time.Duration) {
	if t.late != nil {
		if i := t.taken.Add(1); i <= t.n {
			t.late[i-1] = late
		}
	}
	if t.count.Add(1) == t.n {
		close(t.all)
	}
}

// start is one call of System.Start.
type start struct {
	at   time.Time
	took time.Duration
}

// load starts tasks from several goroutines, and returns the calls of System.Start. next returns
// the next n tasks and may wait before it does; false ends the load.
func load(ctx context.Context, s System, callers int, next func(first, n int) ([]Payload, bool)) ([]start, error) {
	lists := make([][]start, callers)
	err := startTasks(ctx, s, callers, next, func(caller int, s start) { lists[caller] = append(lists[caller], s) })
	return slices.Concat(lists...), err
}

// startTasks is load with a function that gets each call of System.Start, and the number of the
// goroutine that made it.
func startTasks(
	ctx context.Context, s System, callers int, next func(first, n int) ([]Payload, bool), record func(caller int, s start),
) error {
	var group sync.WaitGroup
	var taken atomic.Int64
	errs := make([]error, callers)
	batch := s.Batch()
	for caller := range callers {
		group.Go(func() {
			for errs[caller] == nil {
				tasks, ok := next(int(taken.Add(int64(batch)))-batch, batch)
				if !ok {
					break
				}
				at := time.Now()
				errs[caller] = s.Start(ctx, tasks)
				record(caller, start{at, time.Since(at)})
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func latencies(starts []start) (list []time.Duration) {
	for _, s := range starts {
		list = append(list, s.took)
	}
	return list
}

// completed waits until the handler of the last task was called and all n tasks are
// recorded as completed.
func completed(ctx context.Context, s System, t *tally, n int) error {
	select {
	case <-t.all:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return pollUntil(ctx, pollTimed, func(ctx context.Context) (bool, error) {
		done, err := s.Completed(ctx)
		return done >= n, err
	})
}
