package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// deliveryPolicy is the retry policy of telling other shards about children and parents.
var deliveryPolicy = retry.Must("decorrelated(100ms..10s) attempts=unlimited")

// The limits of deliveries. The end of one run may make as many deliveries as the run has children, and a
// shard may be away for long.
const (
	maxDeliveries      = 64                     // deliveries of a shard that are being done
	maxShardDeliveries = 32                     // of these, deliveries with the same shard
	deliveryTick       = 100 * time.Millisecond // how often deliveries are looked for that are to be repeated
)

// deliveryQueue has the deliveries of a shard.
type deliveryQueue struct {
	process  *Process
	requests *requests
	running  *sync.WaitGroup // the goroutines
	pending  []*Delivery     // to begin when the turn is stored; only the owner uses them

	mu      sync.Mutex
	shards  map[int]*shardDeliveries // by the other shard
	ready   []*shardDeliveries       // those with waiting deliveries; the next delivery is of the first possible one
	failed  []*Delivery              // to be repeated later
	workers int                      // goroutines that do deliveries, or wait for failed ones

	ctx context.Context // of the workers; it ends when the shard is being closed or has stopped
	end context.CancelFunc
}

// shardDeliveries has the deliveries with one other shard. A shard that is away may have many.
type shardDeliveries struct {
	waiting []*Delivery
	active  int // deliveries that are being done
}

// begin begins the pending deliveries. A replay has no other shards.
func (q *deliveryQueue) begin() {
	if len(q.pending) == 0 {
		return
	}
	if q.process.replay == nil {
		q.mu.Lock()
		q.enqueue(q.pending)
		q.mu.Unlock()
	}
	clear(q.pending)
	q.pending = q.pending[:0]
}

// enqueue does the deliveries when fewer than maxDeliveries are being done, and fewer than
// maxShardDeliveries with the same shard. Deliveries with the same shard begin in their order. The
// caller must hold the lock of the queue.
func (q *deliveryQueue) enqueue(list []*Delivery) {
	if q.shards == nil {
		q.shards = map[int]*shardDeliveries{}
	}
	for _, e := range list {
		s := q.shards[e.Shard]
		if s == nil {
			s = new(shardDeliveries)
			q.shards[e.Shard] = s
		}
		if len(s.waiting) == 0 {
			q.ready = append(q.ready, s)
		}
		s.waiting = append(s.waiting, e)
	}
	for range min(len(list), maxDeliveries-q.workers) {
		q.addWorker(q.work)
	}
}

// addWorker begins a goroutine for deliveries. The caller must hold the lock of the queue.
func (q *deliveryQueue) addWorker(work func(context.Context)) {
	q.workers++
	q.running.Go(func() { work(q.ctx) })
}

// work does deliveries until none waits or the shard is closed.
func (q *deliveryQueue) work(ctx context.Context) {
	for e := q.next(ctx, nil); e != nil; e = q.next(ctx, e) {
		err := q.process.Peers.Deliver(ctx, e)
		switch {
		case ctx.Err() != nil: // the next owner does the delivery again
		case canRepeat(err):
			q.repeatLater(e)
		case e.Kind == CancelChild && !errors.Is(err, machine.ErrUnknown):
		default:
			_ = q.requests.Do(ctx, func(t Recorder) error { e.done(t, err); return nil }) // an error means that the shard is closed: see above
		}
	}
}

// canRepeat reports whether a delivery failed because the other shard could not be asked.
func canRepeat(err error) bool {
	return errors.Is(err, ErrAway) || errors.Is(err, ErrClosed) || errors.Is(err, ErrOldMember) || errors.Is(err, ErrBusy) ||
		errors.Is(err, context.DeadlineExceeded)
}

// next returns the delivery that a worker does next, after the delivery before; nil means that the
// worker ends.
func (q *deliveryQueue) next(ctx context.Context, before *Delivery) *Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before != nil {
		q.shards[before.Shard].active--
	}
	if ctx.Err() == nil {
		if e := q.take(); e != nil {
			return e
		}
	}
	q.workers--
	return nil
}

// take removes the next delivery that can begin, and counts it as active; nil if there is none. The
// other shards take turns. The caller must hold the lock.
func (q *deliveryQueue) take() *Delivery {
	for i, s := range q.ready {
		if s.active >= maxShardDeliveries {
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

// repeatLater has a delivery repeated after a delay. Until then its worker can do others.
func (q *deliveryQueue) repeatLater(e *Delivery) {
	e.failures++
	e.delay = deliveryPolicy.Policy().Delay(e.failures, e.delay, rand.Uint64())
	e.due = time.Now().Add(e.delay)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed = append(q.failed, e); len(q.failed) == 1 {
		q.addWorker(q.repeatFailed)
	}
}

// repeatFailed begins failed deliveries again when they are due, until there are none or the shard is
// closed.
func (q *deliveryQueue) repeatFailed(ctx context.Context) {
	tick := time.NewTicker(deliveryTick)
	defer tick.Stop()
	for more := true; more; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		more = q.repeatDue(ctx, time.Now())
	}
}

// repeatDue begins the failed deliveries again that are due. It returns whether others are left.
func (q *deliveryQueue) repeatDue(ctx context.Context, now time.Time) (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var due []*Delivery
	q.failed = slices.DeleteFunc(q.failed, func(e *Delivery) bool {
		if e.due.After(now) && ctx.Err() == nil {
			return false
		}
		due = append(due, e)
		return true
	})
	if ctx.Err() == nil {
		q.enqueue(due)
	}
	if more = len(q.failed) > 0; !more {
		q.workers--
	}
	return more
}
