package limit

import (
	"cmp"
	"sync/atomic"
	"time"
)

// WaitState is the state of a [Waiter].
type WaitState uint32

// The states of a waiter. Waiting changes into one of the others, once.
const (
	Waiting WaitState = iota // in the queue
	Granted                  // holds a permit
	Shed                     // evicted by a more urgent caller
	Expired                  // its deadline passed before it was served
	Left                     // its caller gave up
)

// Waiter is a caller in the queue of a [Concurrency].
type Waiter struct {
	rank     int64         // the smaller, the more urgent
	deadline time.Duration // 0 means none
	arrival  uint64        // breaks ties
	class    int
	place    [2]int        // its indexes in the heaps first and last
	ready    chan struct{} // closed when the wait is over; nil for EnqueueAt
	state    atomic.Uint32
}

// State returns the waiter's state.
func (w *Waiter) State() WaitState { return WaitState(w.state.Load()) }

// finish ends the wait in the state s.
func (w *Waiter) finish(s WaitState) {
	w.state.Store(uint32(s))
	if w.ready != nil {
		close(w.ready)
	}
}

// deadlinePassed reports whether there is a deadline and it is not after now.
func deadlinePassed(deadline, now time.Duration) bool { return deadline != 0 && deadline <= now }

// compare orders waiters: by class after aging, then deadline, then arrival.
func (w *Waiter) compare(v *Waiter) int {
	return cmp.Or(
		cmp.Compare(w.rank, v.rank),
		// One less than zero wraps to the largest number: no deadline comes last.
		cmp.Compare(uint64(w.deadline)-1, uint64(v.deadline)-1),
		cmp.Compare(w.arrival, v.arrival),
	)
}

// queue orders the waiters.
//
// Aging needs no timer and no reordering. Time is divided into periods of
// length aging, and a waiter of class c that arrived in period p has the rank
// p-c. In period q its class has risen to c+(q-p) = q-rank. So at any time the
// order by risen class is the order by rank, which never changes.
type queue struct {
	aging    time.Duration
	first    waiterHeap // the most urgent waiter on top
	last     waiterHeap // the least urgent waiter on top
	arrivals uint64
	byClass  [Classes]int
}

func newQueue(aging time.Duration) queue {
	return queue{aging: aging, first: waiterHeap{side: 0, sign: 1}, last: waiterHeap{side: 1, sign: -1}}
}

func (q *queue) len() int { return len(q.first.waiters) }

// rank returns the rank of a caller that arrives now.
func (q *queue) rank(now time.Duration, p Priority) int64 {
	return int64(now/q.aging) - int64(p.Class())
}

// push adds a caller.
func (q *queue) push(now time.Duration, p Priority, deadline time.Duration) *Waiter {
	q.arrivals++
	w := &Waiter{rank: q.rank(now, p), deadline: deadline, arrival: q.arrivals, class: p.Class()}
	q.byClass[w.class]++
	q.first.push(w)
	q.last.push(w)
	return w
}

// makeRoom makes room for one more waiter. If the queue is full, it sheds the least
// urgent waiter if the class of the new caller is above that of the waiter; otherwise
// it returns ErrQueueFull. Among equal classes the old waiter stays, even if its
// deadline is later: shedding it would waste the time that it has waited.
func (q *queue) makeRoom(now time.Duration, p Priority, limit int) (shed *Waiter, err error) {
	if q.len() < limit {
		return nil, nil
	}
	if q.len() == 0 || q.rank(now, p) >= q.last.top().rank {
		return nil, ErrQueueFull
	}
	shed = q.last.top()
	q.remove(shed)
	shed.finish(Shed)
	return shed, nil
}

// remove removes the waiter from both heaps.
func (q *queue) remove(w *Waiter) {
	q.byClass[w.class]--
	q.first.remove(w)
	q.last.remove(w)
}

// pop removes and returns the most urgent waiter whose deadline has not passed;
// nil if there is none. It finishes the waiters before it as Expired.
func (q *queue) pop(now time.Duration) *Waiter {
	for q.len() > 0 {
		w := q.first.top()
		q.remove(w)
		if !deadlinePassed(w.deadline, now) {
			return w
		}
		w.finish(Expired)
	}
	return nil
}

// waiterHeap is a binary heap whose waiters store their index, so that one can
// be removed from the middle. Two heaps, one for each end, share the waiters.
type waiterHeap struct {
	waiters []*Waiter
	side    int // index into Waiter.place
	sign    int // 1: the most urgent on top; -1: the least urgent
}

func (h *waiterHeap) top() *Waiter { return h.waiters[0] }

func (h *waiterHeap) push(w *Waiter) {
	w.place[h.side] = len(h.waiters)
	h.waiters = append(h.waiters, w)
	h.up(w.place[h.side])
}

func (h *waiterHeap) remove(w *Waiter) {
	i, end := w.place[h.side], len(h.waiters)-1
	h.swap(i, end)
	h.waiters[end] = nil
	h.waiters = h.waiters[:end]
	if i < end {
		h.down(i)
		h.up(i)
	}
}

func (h *waiterHeap) up(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h *waiterHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.waiters) {
			return
		}
		if child+1 < len(h.waiters) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.swap(child, i)
		i = child
	}
}

func (h *waiterHeap) less(i, j int) bool { return h.waiters[i].compare(h.waiters[j])*h.sign < 0 }

func (h *waiterHeap) swap(i, j int) {
	ws := h.waiters
	ws[i], ws[j] = ws[j], ws[i]
	ws[i].place[h.side], ws[j].place[h.side] = i, j
}
