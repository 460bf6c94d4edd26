package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/tideover/tideover/retry"
)

// errand is a task that one shard has with another one. It is repeated until it is done or the
// shard is closed. The state of the shard has all errands: the next owner does them again.
type errand struct {
	sh  *shard
	ctx context.Context
}

// errandPolicy is the retry policy of telling other shards about children and parents.
var errandPolicy = retry.Must("decorrelated(100ms..10s) attempts=unlimited")

// maxErrands limits how many errands of a shard are being done. The end of one run may make as many
// errands as the run has children.
const maxErrands = 64

// errandQueue has the errands of a shard that wait.
type errandQueue struct {
	mu      sync.Mutex
	waiting []func(*errand)
	workers int             // goroutines that do errands
	ctx     context.Context // of these; it ends with the shard, or when there are no workers
	end     context.CancelFunc
}

// beginErrands does the errands, in their order, when fewer than maxErrands are being done.
func (sh *shard) beginErrands(list []func(*errand)) {
	q := &sh.errands
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, list...)
	for range min(len(list), maxErrands-q.workers) {
		if q.workers == 0 {
			q.ctx, q.end = context.WithCancel(context.Background())
			go sh.endErrands(q.ctx, q.end)
		}
		q.workers++
		sh.attempts.Add(1)
		go sh.doErrands(&errand{sh, q.ctx})
	}
}

// endErrands cancels the errands when the shard is closed.
func (sh *shard) endErrands(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	select {
	case <-sh.stop:
	case <-sh.done:
	case <-ctx.Done():
	}
}

// doErrands does errands until none waits or the shard is closed.
func (sh *shard) doErrands(e *errand) {
	defer sh.attempts.Done()
	for do := sh.errands.next(e); do != nil; do = sh.errands.next(e) {
		do(e)
	}
}

// next returns the errand that a worker does next; nil means that the worker ends.
func (q *errandQueue) next(e *errand) (do func(*errand)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 || e.ctx.Err() != nil {
		if q.workers--; q.workers == 0 {
			q.end()
		}
		return nil
	}
	do, q.waiting[0] = q.waiting[0], nil
	q.waiting = q.waiting[1:]
	return do
}

// until repeats f until it succeeds or returns an error that another shard has decided.
func (e *errand) until(f func(context.Context) error) error {
	var final error
	_ = errandPolicy.Do(e.ctx, func(ctx context.Context) error {
		err := f(ctx)
		switch {
		case err == nil:
			return nil
		case isUnreachable(err), errors.Is(err, ErrAway), errors.Is(err, ErrClosed), errors.Is(err, ErrOldMember), errors.Is(err, errBusy), ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
			return err
		}
		final = err
		return nil
	})
	return final
}

// report has the owner call f, unless the shard is closed.
func (e *errand) report(f func(*turn) error) {
	if e.ctx.Err() == nil {
		_ = e.sh.do(e.ctx, f) // it is closed: the next owner does the errand again
	}
}
