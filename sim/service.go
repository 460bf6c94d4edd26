package sim

import (
	"math"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// service is a service at work.
type service struct {
	Service
	caller int // who it is when it calls another
	rate   *limit.Rate
	trouble

	busy    int
	queued  int
	line    line
	classes *classes // instead of the line, for an order by priority

	backlog      int // calls that the limit has refused and not let in since
	work, wasted int64
}

func newService(v Service) service {
	s := service{Service: v, trouble: health, line: line{first: none, last: none}}
	if v.Limit != nil {
		s.rate, _ = limit.NewRate(v.Limit.config()) // it was validated
		s.backlog = v.Limit.foreseen
	}
	if v.Order == ByPriority {
		s.classes = newClasses(v)
	}
	return s
}

// job is an attempt at a service.
type job struct {
	stream  stream
	time    int64  // of a worker
	answer  int64  // when it will be answered; 0 while that is open
	call    uint32 // whose attempt it is; none when that has gone
	next    uint32 // behind it in the line
	service uint8
	slot    uint8 // 0 for an attempt, 1 for its hedge
	fails   bool
	refusal retry.Outcome
}

// send makes a job of an attempt.
func (w *services) send(id uint32, slot uint8) {
	c := &w.calls[id]
	j := w.newJob(job{
		call: id, service: c.target, slot: slot, next: none,
		stream: c.stream.of(forCall, uint64(c.attempts)<<1|uint64(slot)),
	})
	c.jobs[slot] = j
	c.open++
	w.receive(j)
}

func (w *services) newJob(j job) uint32 {
	if n := len(w.freeJobs); n > 0 {
		id := w.freeJobs[n-1]
		w.freeJobs = w.freeJobs[:n-1]
		w.jobs[id] = j
		return id
	}
	w.jobs = append(w.jobs, j)
	return uint32(len(w.jobs) - 1)
}

// receive lets a job in at the service's door, or not.
func (w *services) receive(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	if v.Calls == "" {
		w.loaded(w.queue.now)
	}
	switch {
	case v.outage:
		w.refuse(id, retry.Outcome{})
	case v.blackhole > 0 && j.stream.unit(forBlackHole, 0) < v.blackhole:
		w.calls[j.call].jobs[j.slot] = none
		w.freeJobs = append(w.freeJobs, id)
	case v.rate != nil && !v.rate.AllowAt(time.Duration(w.queue.now)):
		w.turnAway(id)
	default:
		w.letIn(v, &w.calls[j.call])
		w.enqueue(id)
	}
}

// letIn takes a call out of the backlog that the limit lets in.
func (w *services) letIn(v *service, c *call) {
	w.leave(c)
	if v.Limit != nil && v.Limit.foreseen > 0 {
		v.backlog--
	}
}

// refuse answers without work.
func (w *services) refuse(id uint32, o retry.Outcome) {
	w.jobs[id].refusal, w.jobs[id].answer = o, w.queue.now+refusal
	w.queue.add(refusal, workRefused, id, 0)
}

// refused tells the caller.
func (w *services) refused(id uint32) {
	j := w.jobs[id]
	w.freeJobs = append(w.freeJobs, id)
	if j.call != none {
		w.answered(j.call, j.slot, false, j.refusal)
	}
}

// turnAway refuses a job that is above the limit, and says when to come back.
func (w *services) turnAway(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	c := &w.calls[j.call]
	if c.turned == 0 && v.Limit.foreseen == 0 {
		c.turned = j.service + 1
		v.backlog++
	}
	o := retry.Outcome{Class: retry.ClassThrottled}
	switch v.Limit.RetryAfter {
	case SayNothing:
	case SayNext:
		o.After, _ = v.rate.ReserveAt(time.Duration(w.queue.now))
	case SayBacklog:
		all := float64(v.backlog) / v.Limit.Rate * float64(time.Second)
		o.After = time.Duration(j.stream.unit(forRetryAfter, 0)*all) + 1
	}
	w.refuse(id, o)
}

// enqueue gives the job to a worker, puts it in the line, or refuses it.
func (w *services) enqueue(id uint32) {
	v := &w.services[w.jobs[id].service]
	switch {
	case v.classes != nil:
		w.enqueueByClass(v, id)
	case v.Workers == 0 || v.busy < v.workers() && v.queued == 0:
		w.start(id)
	case v.Queue > 0 && v.queued >= v.Queue:
		w.refuse(id, retry.Outcome{Class: retry.ClassThrottled})
	default:
		v.line.push(w.jobs, id, v.Order == LIFO)
		v.queued++
	}
}

// workers returns how many there are at the moment.
func (v *service) workers() int { return v.left(v.capacity) }

// left returns how many workers a share of them is.
func (v *Service) left(share float64) int { return int(math.Round(float64(v.Workers) * share)) }

// start gives a job to a worker.
func (w *services) start(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	d := v.Latency.draw(j.stream.draw(forService, 0)) * (1 + v.Latency.Growth*float64(v.busy))
	d *= v.stretch(j.stream)
	j.fails = v.errors > 0 && j.stream.unit(forFailure, 0) < v.errors
	j.time = int64(min(d, float64(maxTime)))
	if v.Calls == "" {
		j.answer = w.queue.now + j.time
	}
	v.busy++
	w.queue.add(j.time, workDone, id, 0)
}

func (l *Latency) draw(u uint64) float64 {
	switch l.Distribution {
	case Exponential:
		return exponential(u) * float64(l.Mean)
	case Lognormal:
		return lognormal(u, l.Sigma) * float64(l.Mean)
	default:
		return float64(l.Mean)
	}
}

// worked is when the service's own work is done. If it needs another service,
// the worker waits for that.
func (w *services) worked(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	gone := j.call == none
	v.work += j.time
	if gone {
		v.wasted += j.time
	}
	if v.Calls == "" || j.fails || gone && v.Deadlines {
		w.complete(id, !j.fails)
		return
	}
	own := call{stream: j.stream, start: w.queue.now, parent: id, caller: uint8(v.caller)}
	if !gone {
		own.priority = w.calls[j.call].priority
		own.deadline = w.deadline(j)
	}
	w.begin(own)
}

// deadline returns when the job's caller goes, if the service knows; else 0.
func (w *services) deadline(j *job) int64 {
	c := &w.calls[j.call]
	if !w.services[j.service].Deadlines {
		return 0
	}
	if left := c.left(&w.callers[c.caller].policy); left > 0 {
		return c.began + left
	}
	return 0
}

// complete answers a job and gives its worker the next.
func (w *services) complete(id uint32, ok bool) {
	j := w.jobs[id]
	w.freeJobs = append(w.freeJobs, id)
	w.services[j.service].busy--
	w.dispatch(int(j.service))
	if j.call != none {
		w.answered(j.call, j.slot, ok, retry.Outcome{})
	}
}

// dispatch gives work to the workers that are free.
func (w *services) dispatch(i int) {
	v := &w.services[i]
	if v.classes != nil {
		w.dispatchByClass(v)
		return
	}
	for v.queued > 0 && v.busy < v.workers() {
		id := v.line.pop(w.jobs)
		v.queued--
		if v.Deadlines && w.jobs[id].call == none {
			w.freeJobs = append(w.freeJobs, id)
			continue
		}
		w.start(id)
	}
}
