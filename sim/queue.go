package sim

import (
	"context"
	"math"
	"math/bits"
)

// event is something that happens at a moment of virtual time. It is a plain
// value without a pointer: a million of them cost 16 MB and no garbage.
type event struct {
	at  int64  // nanoseconds since the start
	who uint32 // what it happens to: an index that the world understands
	tag uint32 // its kind in the upper 8 bits, a generation in the lower 24
}

// Generations tell a timer that was overtaken from one that still counts.
const generations = 1<<24 - 1

func (e event) kind() uint8        { return uint8(e.tag >> 24) }
func (e event) generation() uint32 { return e.tag & generations }

// queue holds what is going to happen and yields it in order of time; events of
// the same moment in the order they were added.
//
// It is a radix heap. Time never goes back, so an event's bucket is the highest
// bit in which its time differs from that of the last event: equal times share
// a bucket, and a bucket is only ever appended to or dealt out in order into
// lower buckets, which are empty then. That keeps equals in order without a
// number for each.
type queue struct {
	now     int64
	pending int
	filled  uint64 // bit i: bucket i is not empty
	first   int    // the first event of bucket 0 that is still there
	buckets [64][]event
}

// add lets something happen after the delay. One that is too long for the number
// it is computed in comes out negative, and means never.
func (q *queue) add(after int64, kind uint8, who, generation uint32) {
	at := q.now + after
	if after < 0 || at < q.now {
		at = math.MaxInt64
	}
	q.push(event{at: at, who: who, tag: uint32(kind)<<24 | generation&generations})
}

func (q *queue) push(e event) {
	i := bits.Len64(uint64(e.at ^ q.now))
	q.buckets[i] = append(q.buckets[i], e)
	q.filled |= 1 << i
	q.pending++
}

// next takes out the next event and moves the time to it; false if there is none.
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
		q.deal(i)
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

// deal moves the time to the first event of bucket i, the lowest one that is
// not empty, and its events to lower buckets.
func (q *queue) deal(i int) {
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

// world is a model whose time a queue moves.
type world interface {
	handle(event)
	full(context.Context) error // why it has outgrown the memory, if it has; waits for others that are large
}

// between is how many events pass, or are added, between two looks at the context
// and at the memory.
const between = 1 << 14

// play lets the events happen until there are none, the time is over or the
// context has ended. It returns how many happened.
func play(ctx context.Context, q *queue, w world, until int64) (events int, err error) {
	for pending := q.pending; ; {
		if events%between == 0 || q.pending > pending+between {
			pending = q.pending
			if ctx.Err() != nil {
				return events, context.Cause(ctx)
			}
			if err := w.full(ctx); err != nil {
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
