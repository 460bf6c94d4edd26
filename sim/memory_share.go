package sim

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/tideover/tideover/internal/paxos"
)

// room is the memory of a run. How many calls pile up is up to the policy, so that
// some runs turn out to need too much only while they are under way.
type room struct {
	plan  *plan
	large bool // it is the one that may take more than its share
}

// take asks for so many bytes in all. A run that wants more than its share of the
// memory waits until no other has more than its own, so that all runs together
// take no more than twice what one may.
func (r *room) take(ctx context.Context, bytes, now int64, field, what string) error {
	switch {
	case bytes > r.plan.room:
		return fmt.Errorf("%s: %s that are under way after %v take more than %s of memory", field, what, time.Duration(now), gib(float64(r.plan.room)))
	case r.large || bytes <= r.plan.share:
		return nil
	}
	select {
	case r.plan.large <- struct{}{}:
		r.large = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave lets another run be large.
func (r *room) leave() {
	if r.large {
		<-r.plan.large
		r.large = false
	}
}

// size returns the bytes of what is going to happen.
func (q *queue) size() (bytes int64) {
	for i := range q.buckets {
		bytes += int64(cap(q.buckets[i])) * int64(unsafe.Sizeof(event{}))
	}
	return bytes
}

// full implements world.
func (w *services) full(ctx context.Context) error {
	field := "clients.count"
	if w.plan.scenario.Clients.Arrivals == Open {
		field = "clients.rate"
	}
	waiting := 0
	for i := range w.services {
		if c := w.services[i].classes; c != nil {
			waiting += len(c.jobs)
		}
	}
	bytes := w.queue.size() + int64(cap(w.calls))*bytesCall + int64(cap(w.jobs))*bytesJob + int64(waiting)*bytesWaiter
	return w.room.take(ctx, bytes, w.queue.now, field, "the calls")
}

// full implements world.
func (w *group) full(ctx context.Context) error {
	bytes := w.queue.size() + int64(cap(w.messages))*int64(unsafe.Sizeof(paxos.Message{})+4)
	return w.room.take(ctx, bytes, w.queue.now, "group.members", "the messages")
}

// full implements world. Writers do not become more.
func (*writers) full(context.Context) error { return nil }
