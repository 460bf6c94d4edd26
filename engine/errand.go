package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/retry"
)

// errand is a task that one shard has with another one. It is repeated until it is done or the
// shard is closed. The state of the shard has all errands: the next owner does them again.
type errand struct {
	shard int // the other one, as far as that is known
	ask   func(ctx context.Context) error

	// report is called when ask has succeeded, or returned an error that the other shard has
	// decided. The owner calls the function that it returns; nil means that there is nothing to
	// record.
	report func(err error) func(*turn) error

	failures int           // how often the other shard could not be asked
	delay    time.Duration // the last delay
	due      time.Time     // when the errand is to be repeated
}

// errandPolicy is the retry policy of telling other shards about children and parents.
var errandPolicy = retry.Must("decorrelated(100ms..10s) attempts=unlimited")

// The limits of errands. The end of one run may make as many errands as the run has children, and a
// shard may be away for long.
const (
	maxErrands      = 64                     // errands of a shard that are being done
	maxShardErrands = 32                     // of these, errands with the same shard
	errandTick      = 100 * time.Millisecond // how often errands are looked for that are to be repeated
)

// errandQueue has the errands of a shard.
type errandQueue struct {
	mu      sync.Mutex
	shards  map[int]*shardErrands // by the other shard
	ready   []*shardErrands       // those with waiting errands; the next errand is of the first possible one
	failed  []*errand             // to be repeated later
	workers int                   // goroutines that do errands, or wait for failed ones
	ctx     context.Context       // of the workers; it ends with the shard, or when there are no workers
	end     context.CancelFunc
}

// shardErrands has the errands with one other shard. A shard that is away may have many.
type shardErrands struct {
	waiting []*errand
	active  int // errands that are being done
}

// beginErrands does the errands when fewer than maxErrands are being done, and fewer than
// maxShardErrands with the same shard. Errands with the same shard begin in their order.
func (sh *shard) beginErrands(list []*errand) {
	sh.errands.mu.Lock()
	defer sh.errands.mu.Unlock()
	sh.enqueueErrands(list)
}

// enqueueErrands is beginErrands for a caller that holds the lock of the queue.
func (sh *shard) enqueueErrands(list []*errand) {
	q := &sh.errands
	q.add(list)
	for range min(len(list), maxErrands-q.workers) {
		sh.addErrandWorker(sh.doErrands)
	}
}

// addErrandWorker begins a goroutine for errands. The caller must hold the lock of the queue.
func (sh *shard) addErrandWorker(work func(context.Context)) {
	q := &sh.errands
	if q.workers == 0 {
		q.ctx, q.end = context.WithCancel(context.Background())
		go sh.endErrands(q.ctx, q.end)
	}
	q.workers++
	sh.attempts.Add(1)
	ctx := q.ctx
	go func() {
		defer sh.attempts.Done()
		work(ctx)
	}()
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
func (sh *shard) doErrands(ctx context.Context) {
	for e := sh.errands.next(ctx, nil); e != nil; e = sh.errands.next(ctx, e) {
		err := e.ask(ctx)
		switch {
		case ctx.Err() != nil: // the next owner does the errand again
		case canRepeat(err):
			sh.repeatLater(e)
		default:
			if record := e.report(err); record != nil {
				_ = sh.do(ctx, record) // an error means that the shard is closed: see above
			}
		}
	}
}

// canRepeat reports whether an errand failed because the other shard could not be asked.
func canRepeat(err error) bool {
	return isUnreachable(err) || errors.Is(err, ErrAway) || errors.Is(err, ErrClosed) || errors.Is(err, ErrOldMember) || errors.Is(err, errBusy) ||
		errors.Is(err, context.DeadlineExceeded)
}

// next returns the errand that a worker does next, after the errand before; nil means that the
// worker ends.
func (q *errandQueue) next(ctx context.Context, before *errand) *errand {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before != nil {
		q.shards[before.shard].active--
	}
	if ctx.Err() == nil {
		if e := q.take(); e != nil {
			return e
		}
	}
	q.leave()
	return nil
}

// add adds errands that wait. The caller must hold the lock.
func (q *errandQueue) add(list []*errand) {
	if q.shards == nil {
		q.shards = map[int]*shardErrands{}
	}
	for _, e := range list {
		s := q.shards[e.shard]
		if s == nil {
			s = new(shardErrands)
			q.shards[e.shard] = s
		}
		if len(s.waiting) == 0 {
			q.ready = append(q.ready, s)
		}
		s.waiting = append(s.waiting, e)
	}
}

// take removes the next errand that can begin, and counts it as active; nil if there is none. The
// other shards take turns. The caller must hold the lock.
func (q *errandQueue) take() *errand {
	for i, s := range q.ready {
		if s.active >= maxShardErrands {
			continue
		}
		e := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		s.active++
		q.ready = slices.Delete(q.ready, i, i+1)
		if len(s.waiting) > 0 {
			q.ready = append(q.ready, s)
		}
		return e
	}
	return nil
}

// leave notes that a worker ends. The caller must hold the lock.
func (q *errandQueue) leave() {
	if q.workers--; q.workers == 0 {
		q.end()
	}
}

// repeatLater has an errand repeated after a delay. Until then its worker can do others.
func (sh *shard) repeatLater(e *errand) {
	e.failures++
	e.delay = errandPolicy.Policy().Delay(e.failures, e.delay, rand.Uint64())
	e.due = time.Now().Add(e.delay)
	q := &sh.errands
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed = append(q.failed, e); len(q.failed) == 1 {
		sh.addErrandWorker(sh.repeatErrands)
	}
}

// repeatErrands begins failed errands again when they are due, until there are none or the shard is
// closed.
func (sh *shard) repeatErrands(ctx context.Context) {
	tick := time.NewTicker(errandTick)
	defer tick.Stop()
	for more := true; more; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		more = sh.repeatDue(ctx, time.Now())
	}
}

// repeatDue begins the failed errands again that are due. It returns whether others are left.
func (sh *shard) repeatDue(ctx context.Context, now time.Time) (more bool) {
	q := &sh.errands
	q.mu.Lock()
	defer q.mu.Unlock()
	var due []*errand
	q.failed = slices.DeleteFunc(q.failed, func(e *errand) bool {
		if e.due.After(now) && ctx.Err() == nil {
			return false
		}
		due = append(due, e)
		return true
	})
	if ctx.Err() == nil {
		sh.enqueueErrands(due)
	}
	if more = len(q.failed) > 0; !more {
		q.leave()
	}
	return more
}
