package sim

import (
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// jobList is a linked list of the jobs that wait for a worker.
type jobList struct{ first, last uint32 }

// push adds a job at the end, or at the front.
func (l *jobList) push(jobs []job, id uint32, front bool) {
	switch {
	case l.first == none:
		l.first, l.last = id, id
	case front:
		jobs[id].next, l.first = l.first, id
	default:
		jobs[l.last].next, l.last = id, id
	}
}

// pop removes and returns the first job. The list must not be empty.
func (l *jobList) pop(jobs []job) uint32 {
	id := l.first
	l.first = jobs[id].next
	jobs[id].next = none
	return id
}

// priorityQueue is the queue of a service whose order is by priority. It is a
// [limit.Concurrency]: jobs age, and a full queue sheds the least urgent job.
type priorityQueue struct {
	limit *limit.Concurrency
	jobs  map[*limit.Waiter]uint32
}

// enqueueByPriority starts the job, queues it, or refuses it.
func (w jobServer) enqueueByPriority(v *service, id uint32) {
	now, p := time.Duration(w.queue.now), w.calls[w.jobs[id].call].priority
	waiter, shed, err := v.byPriority.limit.EnqueueAt(now, p, 0)
	if shed != nil {
		w.scheduleRefusal(v.byPriority.removeJob(shed), retry.ClassThrottled, 0)
		v.queued--
	}
	switch {
	case err != nil:
		w.scheduleRefusal(id, retry.ClassThrottled, 0)
	case waiter.State() == limit.Granted:
		w.startJob(id)
	default:
		v.byPriority.jobs[waiter] = id
		v.queued++
	}
}

// removeJob removes and returns the job of a waiter that no longer waits.
func (c *priorityQueue) removeJob(w *limit.Waiter) uint32 {
	id := c.jobs[w]
	delete(c.jobs, w)
	return id
}

// dispatchByPriority gives the permits of free workers to waiting jobs and
// starts those jobs. Call it after a worker became free or the number of
// workers has changed.
func (w jobServer) dispatchByPriority(v *service) {
	now := time.Duration(w.queue.now)
	granted, _ := v.byPriority.limit.SetMaxAt(now, max(v.workers, 1))
	for _, waiter := range granted {
		w.startGranted(v, waiter)
	}
	for v.byPriority.limit.Stats().InUse > v.busy {
		if waiter := v.byPriority.limit.ReleaseAt(now); waiter != nil {
			w.startGranted(v, waiter)
		}
	}
}

// startGranted starts the job of a waiter that got a permit, unless its caller
// is gone: the loop in dispatchByPriority then releases the permit.
func (w jobServer) startGranted(v *service, waiter *limit.Waiter) {
	id := v.byPriority.removeJob(waiter)
	v.queued--
	if v.Deadlines && w.jobs[id].call == none {
		w.freeJobs = append(w.freeJobs, id)
		return
	}
	w.startJob(id)
}
