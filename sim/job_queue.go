package sim

import (
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// line is who waits for a worker, linked through the jobs.
type line struct{ first, last uint32 }

// push adds a job at the end, or at the front.
func (l *line) push(jobs []job, id uint32, front bool) {
	switch {
	case l.first == none:
		l.first, l.last = id, id
	case front:
		jobs[id].next, l.first = l.first, id
	default:
		jobs[l.last].next, l.last = id, id
	}
}

// pop takes the job at the front, which there is.
func (l *line) pop(jobs []job) uint32 {
	id := l.first
	l.first = jobs[id].next
	jobs[id].next = none
	return id
}

// classes is the library's own limit as the queue of a service: by priority,
// with aging, and the least urgent shed when it is full.
type classes struct {
	limit *limit.Concurrency
	jobs  map[*limit.Waiter]uint32
}

func newClasses(v Service) *classes {
	c, _ := limit.NewConcurrency(limit.ConcurrencyConfig{Max: v.Workers, Queue: v.Queue}) // it was validated
	return &classes{limit: c, jobs: map[*limit.Waiter]uint32{}}
}

func (w *services) enqueueByClass(v *service, id uint32) {
	now, p := time.Duration(w.queue.now), w.calls[w.jobs[id].call].priority
	waiter, shed, err := v.classes.limit.EnqueueAt(now, p, 0)
	if shed != nil {
		w.refuse(v.classes.take(shed), retry.Outcome{Class: retry.ClassThrottled})
		v.queued--
	}
	switch {
	case err != nil:
		w.refuse(id, retry.Outcome{Class: retry.ClassThrottled})
	case waiter.State() == limit.Granted:
		w.start(id)
	default:
		v.classes.jobs[waiter] = id
		v.queued++
	}
}

// take returns the job of a waiter who no longer waits.
func (c *classes) take(w *limit.Waiter) uint32 {
	id := c.jobs[w]
	delete(c.jobs, w)
	return id
}

// dispatchByClass returns permits until as many are in use as workers are busy,
// and starts the jobs that get them. It is called after a worker was freed or
// the number of workers has changed.
func (w *services) dispatchByClass(v *service) {
	now := time.Duration(w.queue.now)
	granted, _ := v.classes.limit.SetMaxAt(now, max(v.workers(), 1))
	for _, waiter := range granted {
		w.startGranted(v, waiter)
	}
	for v.classes.limit.Stats().InUse > v.busy {
		if waiter := v.classes.limit.ReleaseAt(now); waiter != nil {
			w.startGranted(v, waiter)
		}
	}
}

// startGranted starts the job of a waiter that got a permit, unless nobody
// wants it any more: the permit is then released by the next turn of the loop.
func (w *services) startGranted(v *service, waiter *limit.Waiter) {
	id := v.classes.take(waiter)
	v.queued--
	if v.Deadlines && w.jobs[id].call == none {
		w.freeJobs = append(w.freeJobs, id)
		return
	}
	w.start(id)
}
