package durable

import (
	"context"
	"errors"
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

// load starts tasks from several goroutines. next returns the next n tasks and may
// wait before it does; false ends the load.
func load(ctx context.Context, s System, callers int, next func(first, n int) ([]Payload, bool)) ([]start, error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	var taken atomic.Int64
	var all []start
	var errs []error
	batch := s.Batch()
	for range callers {
		group.Go(func() {
			var own []start
			var err error
			for err == nil {
				tasks, ok := next(int(taken.Add(int64(batch)))-batch, batch)
				if !ok {
					break
				}
				at := time.Now()
				err = s.Start(ctx, tasks)
				own = append(own, start{at, time.Since(at)})
			}
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, own...), append(errs, err)
		})
	}
	group.Wait()
	return all, errors.Join(errs...)
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
