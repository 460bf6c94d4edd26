package sim

import (
	"math"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// service is the state of a service.
type service struct {
	Service
	caller int         // index in serviceModel.callers, if it calls another service
	rate   *limit.Rate // nil for a limit with windows
	faults

	workers    int // present number of workers
	busy       int
	queued     int
	waiting    jobList
	byPriority *priorityQueue // instead of waiting, for an order by priority

	window   int64 // number of the window of the rate limit
	admitted int   // calls in that window, and those that were refused

	backlog      int // calls that the rate limit has refused and not yet admitted
	work, wasted int64
}

func newService(v Service) service {
	s := service{Service: v, waiting: jobList{first: none, last: none}}
	s.setFaults(noFaults)
	if v.Limit != nil {
		s.rate, _ = limit.NewRate(v.Limit.config()) // it was validated
		s.backlog = v.Limit.foreseen
	}
	if v.Order == ByPriority {
		c, _ := limit.NewConcurrency(limit.ConcurrencyConfig{Max: v.Workers, Queue: v.Queue}) // it was validated
		s.byPriority = &priorityQueue{limit: c, jobs: map[*limit.Waiter]uint32{}}
	}
	return s
}

// job is an attempt at a service.
type job struct {
	stream  stream
	time    int64         // how long the worker is busy
	answer  int64         // when the service will answer; 0 while that is unknown
	after   time.Duration // of a refused job: the Retry-After
	call    uint32        // the call whose attempt it is; none after the attempt has ended
	next    uint32        // the next in the list of waiting jobs
	service uint8
	slot    uint8 // 0 for an attempt, 1 for its hedge
	fails   bool
	class   retry.Class // of a refused job

	_ [20]byte // a job fills a cache line, so that no access needs two
}

// jobServer is the service side of a model: it admits, queues and answers jobs.
type jobServer struct{ *serviceModel }

// jobTable holds the jobs, and reuses the places of those that have ended.
type jobTable struct {
	jobs     []job
	freeJobs []uint32
}

// sendJob sends an attempt of the call to its target as a job. slot is 0 for
// the attempt itself, 1 for its hedge.
func (w jobServer) sendJob(id uint32, slot uint8) {
	c := &w.calls[id]
	n := w.addJob()
	j := &w.jobs[n]
	j.call, j.service, j.slot, j.next = id, c.target, slot, none
	j.stream = c.stream.derive(forCall, uint64(c.attempts)<<1|uint64(slot))
	c.jobs[slot] = n
	c.open++
	w.receiveJob(n)
}

// addJob adds a job whose fields are zero and returns its index.
func (t *jobTable) addJob() uint32 {
	if n := len(t.freeJobs); n > 0 {
		id := t.freeJobs[n-1]
		t.freeJobs = t.freeJobs[:n-1]
		t.jobs[id] = job{}
		return id
	}
	t.jobs = append(t.jobs, job{})
	return uint32(len(t.jobs) - 1)
}

// receiveJob admits a job to the service, or refuses it.
func (w jobServer) receiveJob(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	if v.Calls == "" {
		w.recordLoad(w.queue.now)
	}
	switch {
	case v.outage:
		w.scheduleRefusal(id, retry.ClassTransient, 0)
	case v.rejections > 0 && j.stream.unit(forRejection, 0) < v.rejections:
		w.scheduleRefusal(id, retry.ClassTransient, 0)
	case v.blackhole > 0 && j.stream.unit(forBlackHole, 0) < v.blackhole:
		w.calls[j.call].jobs[j.slot] = none
		w.freeJobs = append(w.freeJobs, id)
	case v.Limit != nil && !v.underLimit(time.Duration(w.queue.now)):
		w.refuseOverLimit(id)
	default:
		w.admitCall(v, &w.calls[j.call])
		if v.canStart() {
			w.startJob(id)
			return
		}
		w.enqueue(id)
	}
}

// underLimit reports whether the rate limit admits a call now, and counts the call.
func (v *service) underLimit(now time.Duration) bool {
	if v.Limit.Window == 0 {
		return v.rate.AllowAt(now)
	}
	if n := int64(now / v.Limit.Window); n != v.window {
		v.window, v.admitted = n, 0
	}
	v.admitted++
	return v.admitted <= v.Limit.perWindow()
}

// untilNext returns the time until the rate limit admits the next call.
func (v *service) untilNext(now time.Duration) time.Duration {
	if v.Limit.Window > 0 {
		return v.Limit.Window - now%v.Limit.Window
	}
	after, _ := v.rate.ReserveAt(now)
	return after
}

// admitCall removes an admitted call from the backlog.
func (w jobServer) admitCall(v *service, c *call) {
	w.leaveBacklog(c)
	if v.Limit != nil && v.Limit.foreseen > 0 {
		v.backlog--
	}
}

// scheduleRefusal schedules the refusal of a job, which takes a fixed time and no
// worker. after is the Retry-After; 0 means none.
func (w jobServer) scheduleRefusal(id uint32, class retry.Class, after time.Duration) {
	j := &w.jobs[id]
	j.class, j.after, j.answer = class, after, w.queue.now+refusal
	w.queue.add(refusal, workRefused, id, 0)
}

// deliverRefusal delivers a refusal to the caller.
func (w jobServer) deliverRefusal(id uint32) {
	j := &w.jobs[id]
	w.freeJobs = append(w.freeJobs, id)
	if j.call != none {
		w.handleAnswer(j.call, j.slot, false, retry.Outcome{Class: j.class, After: j.after})
	}
}

// refuseOverLimit refuses a job that exceeds the rate limit, with a Retry-After
// if the limit has one.
func (w jobServer) refuseOverLimit(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	c := &w.calls[j.call]
	if c.backlogOf == 0 && v.Limit.foreseen == 0 {
		c.backlogOf = j.service + 1
		v.backlog++
	}
	var after time.Duration
	switch v.Limit.RetryAfter {
	case SayNothing:
	case SayNext:
		after = v.untilNext(time.Duration(w.queue.now))
	case SayBacklog:
		all := float64(v.backlog) / v.Limit.Rate * float64(time.Second)
		after = time.Duration(j.stream.unit(forRetryAfter, 0)*all) + 1
	}
	w.scheduleRefusal(id, retry.ClassThrottled, after)
}

// canStart reports whether a worker is free for a job that arrives. Only the queue of a
// service that serves by priority knows that.
func (v *service) canStart() bool {
	return v.byPriority == nil && (v.Workers == 0 || v.busy < v.workers && v.queued == 0)
}

// enqueue queues a job that cannot start at once, or refuses it.
func (w jobServer) enqueue(id uint32) {
	v := &w.services[w.jobs[id].service]
	switch {
	case v.byPriority != nil:
		w.enqueueByPriority(v, id)
	case v.Queue > 0 && v.queued >= v.Queue:
		w.scheduleRefusal(id, retry.ClassThrottled, 0)
	default:
		v.waiting.push(w.jobs, id, v.Order == LIFO)
		v.queued++
	}
}

// setFaults changes the faults of the service, and so the number of its workers.
func (v *service) setFaults(t faults) {
	v.faults = t
	v.workers = v.workersLeft(t.capacity)
}

// workersLeft returns how many workers the share is, rounded. A service with a
// capacity keeps a worker, which is slower instead: see occupancy.
func (v *Service) workersLeft(share float64) int {
	n := int(math.Round(float64(v.Workers) * share))
	if v.Capacity > 0 && share > 0 {
		return max(n, 1)
	}
	return n
}

// occupancy returns for how long a call occupies its worker, as a multiple of
// its latency: 1, or what gives the service its capacity.
func (v *service) occupancy() float64 {
	if v.Capacity == 0 {
		return 1
	}
	return float64(v.workers) / (v.Capacity * v.capacity * v.Latency.Mean.Seconds())
}

// startJob gives a job to a worker.
func (w jobServer) startJob(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	d := v.Latency.draw(j.stream.draw(forService, 0)) * (1 + v.Latency.Growth*float64(v.busy))
	d *= v.slowdown(j.stream)
	j.fails = v.errors > 0 && j.stream.unit(forFailure, 0) < v.errors
	latency := int64(min(d, float64(maxTime)))
	if v.Calls == "" {
		j.answer = w.queue.now + latency
	}
	v.busy++
	j.time = latency
	if v.Capacity > 0 {
		j.time = int64(min(d*v.occupancy(), float64(maxTime)))
		w.queue.add(j.time, workerFree, uint32(j.service), 0)
	}
	w.queue.add(latency, workDone, id, 0)
}

// freeWorker ends the work of a worker of service i, which has a capacity, and
// gives the worker the next waiting job.
func (w jobServer) freeWorker(i int) {
	v := &w.services[i]
	v.busy--
	if v.queued > 0 || v.byPriority != nil {
		w.dispatch(i)
	}
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

// finishWork ends the service's own work on a job. If the job needs another service,
// the worker waits for the answer of that service.
func (w jobServer) finishWork(id uint32) {
	j := &w.jobs[id]
	v := &w.services[j.service]
	gone := j.call == none
	v.work += j.time
	if gone {
		v.wasted += j.time
	}
	if v.Calls == "" || j.fails || gone && v.Deadlines {
		w.answerJob(id, !j.fails)
		return
	}
	n := w.addCall(j.stream, w.queue.now)
	c := &w.calls[n]
	c.parent, c.caller = id, uint8(v.caller)
	if !gone {
		c.priority = w.calls[j.call].priority
	}
	if w.deadlines != nil && !gone {
		w.deadlines[n] = w.callerDeadline(j)
	}
	w.startCall(n)
}

// callerDeadline returns when the job's caller stops waiting. It is 0 if the
// caller has no timeout or the service does not support deadlines.
func (w jobServer) callerDeadline(j *job) int64 {
	if left := w.timeLeft(j.call); left > 0 && w.services[j.service].Deadlines {
		return w.calls[j.call].began + left
	}
	return 0
}

// answerJob answers a job. Unless the service has a capacity, its worker is free
// then.
func (w jobServer) answerJob(id uint32, ok bool) {
	j := &w.jobs[id]
	w.freeJobs = append(w.freeJobs, id)
	if w.services[j.service].Capacity == 0 {
		w.freeWorker(int(j.service))
	}
	if j.call != none {
		w.handleAnswer(j.call, j.slot, ok, retry.Outcome{})
	}
}

// dispatch gives waiting jobs to free workers.
func (w jobServer) dispatch(i int) {
	v := &w.services[i]
	if v.byPriority != nil {
		w.dispatchByPriority(v)
		return
	}
	for v.queued > 0 && v.busy < v.workers {
		id := v.waiting.pop(w.jobs)
		v.queued--
		if v.Deadlines && w.jobs[id].call == none {
			w.freeJobs = append(w.freeJobs, id)
			continue
		}
		w.startJob(id)
	}
}

// faults are the combined failures of a service at a moment. Failures affect
// calls independently of each other.
type faults struct {
	outage     bool
	errors     float64       // share of the work that at least one failure affects
	rejections float64       // share of the calls that at least one failure affects
	blackhole  float64       // share of the calls that at least one failure affects
	slow       []slowFailure // one for each failure
	capacity   float64       // share of the workers left
}

// slowFailure is a failure that slows work down.
type slowFailure struct {
	number        uint64 // of the failure, which selects its random numbers
	share, factor float64
}

var noFaults = faults{capacity: 1}

// updateFaults recomputes the faults of the service that failure n affects, and
// starts waiting jobs if it has more workers now.
func (w jobServer) updateFaults(n int) {
	i := max(w.plan.scenario.index(w.plan.scenario.Failures[n].Service), 0)
	w.services[i].setFaults(faultsAt(&w.plan.scenario, i, time.Duration(w.queue.now)))
	w.dispatch(i)
}

// faultsAt returns the faults of service i at the time.
func faultsAt(s *Scenario, i int, now time.Duration) faults {
	t, slow := noFaults, uint64(0)
	for _, f := range s.Failures {
		if max(s.index(f.Service), 0) == i && f.covers(now) {
			t.addFailure(f, slow)
		}
		if f.Kind == Slow {
			slow++
		}
	}
	return t
}

// addFailure adds a failure. n is the number of failures of kind Slow before it in
// the scenario.
func (t *faults) addFailure(f Failure, n uint64) {
	switch f.Kind {
	case Outage:
		t.outage = true
	case Errors:
		t.errors += f.Share * (1 - t.errors)
	case Reject:
		t.rejections += f.Share * (1 - t.rejections)
	case BlackHole:
		t.blackhole += f.Share * (1 - t.blackhole)
	case Slow:
		t.slow = append(t.slow, slowFailure{n, f.Share, f.Factor})
	case Capacity: // the share of the workers that is left
		t.capacity = min(t.capacity, f.Share)
	}
}

// slowdown returns the factor by which a job takes longer: the product of the
// factors of all failures that affect it.
func (t *faults) slowdown(job stream) float64 {
	times := 1.0
	for _, s := range t.slow {
		if job.unit(forSlowness, s.number) < s.share {
			times *= s.factor
		}
	}
	return min(times, float64(maxTime)) // stays finite, because infinity times zero is NaN
}
