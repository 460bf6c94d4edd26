package sim

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/tideover/tideover/internal/paxos"
)

// memoryShare limits the memory of a run. How many calls accumulate depends on
// the policy, so some runs need too much only after a while.
type memoryShare struct {
	plan  *plan
	large bool // it is the one run that may use more than its share
}

// reserve checks a total of bytes. A run that needs more than its share waits
// until no other run uses more than its own, so that all runs together use at
// most twice the limit.
func (r *memoryShare) reserve(ctx context.Context, bytes, now int64, field, what string) error {
	switch {
	case bytes > r.plan.memoryLimit:
		return fmt.Errorf("%s: %s in flight after %v take more than %s of memory: use a smaller value", field, what, time.Duration(now), gib(float64(r.plan.memoryLimit)))
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

// release lets another run exceed its share.
func (r *memoryShare) release() {
	if r.large {
		<-r.plan.large
		r.large = false
	}
}

// size returns the bytes of the scheduled events.
func (q *queue) size() (bytes int64) {
	for i := range q.buckets {
		bytes += int64(cap(q.buckets[i])) * int64(unsafe.Sizeof(event{}))
	}
	return bytes
}

// checkMemory implements model.
func (w *serviceModel) checkMemory(ctx context.Context) error {
	field := "clients.count"
	if w.plan.scenario.Clients.Arrivals == Open {
		field = "clients.rate"
	}
	waiting := 0
	for i := range w.services {
		if c := w.services[i].byPriority; c != nil {
			waiting += len(c.jobs)
		}
	}
	bytes := w.queue.size() + int64(cap(w.calls))*bytesCall + int64(cap(w.jobs))*bytesJob + int64(waiting)*bytesWaiter
	return w.memoryShare.reserve(ctx, bytes, w.queue.now, field, "the calls")
}

// checkMemory implements model.
func (w *group) checkMemory(ctx context.Context) error {
	bytes := w.queue.size() + int64(cap(w.messages))*int64(unsafe.Sizeof(paxos.Message{})+4)
	return w.memoryShare.reserve(ctx, bytes, w.queue.now, "group.members", "the messages")
}

// checkMemory implements model. The number of writers is constant.
func (*writers) checkMemory(context.Context) error { return nil }
