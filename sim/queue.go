package sim

import (
	"context"
	"math"
	"math/bits"
)

// event is something that happens at a moment of virtual time. It is a plain
// value without a pointer: a million of them cost 16 MB and no garbage
// collection.
type event struct {
	at  int64  // nanoseconds since the start
	who uint32 // what it happens to: an index whose meaning depends on the kind
	tag uint32 // its kind in the upper 8 bits, a generation in the lower 24
}

// generations is the mask of the generation of an event. A timer event is out of date
// if its call has a different generation when the event is due.
const generations = 1<<24 - 1

func (e event) kind() uint8        { return uint8(e.tag >> 24) }
func (e event) generation() uint32 { return e.tag & generations }

// queue returns scheduled events in order of time, and events of the same moment
// in the order in which they were added.
//
// It is a radix heap. Time never goes back, so an event's bucket is the highest
// bit in which its time differs from that of the last event: equal times share
// a bucket, and a bucket is only appended to, or redistributed in order into
// lower buckets, which are empty then. That keeps equal times in order without
// a sequence number.
type queue struct {
	now     int64
	pending int
	filled  uint64 // bit i: bucket i is not empty
	first   int    // index of the next event of bucket 0
	buckets [64][]event
}

// add schedules an event after the delay. A negative delay, the result of an
// overflow, means never.
func (q *queue) add(after int64, kind uint8, who, generation uint32) {
	at := q.now + after
	if after < 0 || at < q.now {
		at = math.MaxInt64
	}
	i := bits.Len64(uint64(at ^ q.now))
	q.buckets[i] = append(q.buckets[i], event{at: at, who: who, tag: uint32(kind)<<24 | generation&generations})
	q.filled |= 1 << i
	q.pending++
}

// next removes and returns the next event and moves the time to it; false if
// there is none.
func (q *queue) next() (event, bool) {
	if q.pending == 0 {
		return event{}, false
	}
	q.pending--
	if q.filled&1 == 0 {
		i := bits.TrailingZeros64(q.filled)
		if b := q.buckets[i]; len(b) == 1 {
			e := b[0]
			q.buckets[i] = b[:0]
			q.filled &^= 1 << i
			q.now = e.at
			return e, true
		}
		q.redistribute(i)
	}
	b := q.buckets[0]
	e := b[q.first]
	q.first++
	if q.first == len(b) {
		q.buckets[0], q.first = b[:0], 0
		q.filled &^= 1
	}
	return e, true
}

// redistribute moves the time to the first event of bucket i, and the events of
// that bucket to lower buckets. Bucket i must be the lowest that is not empty.
func (q *queue) redistribute(i int) {
	b := q.buckets[i]
	first := b[0].at
	for _, e := range b[1:] {
		first = min(first, e.at)
	}
	q.now = first
	for _, e := range b {
		j := bits.Len64(uint64(e.at ^ first))
		q.buckets[j] = append(q.buckets[j], e)
		q.filled |= 1 << j
	}
	q.buckets[i] = b[:0]
	q.filled &^= 1 << i
}

// model is a simulated system that handles events.
type model interface {
	handle(event)
	checkMemory(context.Context) error // returns an error if the run exceeds the memory limit; may wait for other runs
}

// checkInterval is how many events are handled, or added, between two checks of
// the context and of the memory.
const checkInterval = 1 << 14

// runModel handles events until there are none, the time until is over or the
// context has ended. It returns the number of events that it handled.
func runModel(ctx context.Context, q *queue, w model, until int64) (events int, err error) {
	for pending := q.pending; ; {
		if events%checkInterval == 0 || q.pending > pending+checkInterval {
			pending = q.pending
			if ctx.Err() != nil {
				return events, context.Cause(ctx)
			}
			if err := w.checkMemory(ctx); err != nil {
				return events, err
			}
		}
		e, ok := q.next()
		if !ok || e.at > until {
			return events, nil
		}
		w.handle(e)
		events++
	}
}
