package sim

import (
	"math"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// none is an index that refers to no call and to no job.
const none = ^uint32(0)

// call is one operation with its attempts, as [retry.Runner] makes them.
type call struct {
	stream    stream
	start     int64
	began     int64 // start of the attempt in flight
	prev      time.Duration
	client    uint32 // 0 for the call of a service
	parent    uint32 // the job of a service that waits for it; none for a client's call
	attempts  uint32
	gen       uint32    // changes whenever earlier timers become invalid
	jobs      [2]uint32 // of the attempt and its hedge
	caller    uint8
	target    uint8 // service of the attempt in flight
	open      uint8 // answers that are still expected
	backlogOf uint8 // 1 + the service whose backlog contains the call; 0 for none
	priority  limit.Priority
}

// callTable holds the calls, and reuses the indexes of those that have ended.
type callTable struct {
	calls         []call
	freeCalls     []uint32
	accounts      []limit.Call     // parallel to calls, if there is a budget
	deadlines     []int64          // parallel to calls, if services pass deadlines on: when the caller of the parent job stops waiting; 0 means never
	permits       []breaker.Permit // parallel to calls, if there is a breaker
	firstOutcomes []retry.Outcome  // parallel to calls, if there are hedges: the outcome of the first attempt
	unlimited     limit.Call       // the account of calls without a budget
}

// startCall makes the first attempt of a call that was added.
func (w *serviceModel) startCall(id uint32) {
	if w.accounts != nil {
		c := &w.calls[id]
		w.accounts[id] = w.callers[c.caller].account(w.process(c))
	}
	w.startAttempt(id)
}

// process returns the process of the call's client; 0 for the call of a service.
func (w *serviceModel) process(c *call) uint32 {
	if w.sharing == 1 {
		return c.client // saves the division
	}
	return c.client / w.sharing
}

// addCallColumns creates the optional slices parallel to calls, if at least one
// caller or service needs them.
func (t *callTable) addCallColumns(callers []caller, services []service) {
	for i := range services {
		if services[i].Calls != "" && services[i].Deadlines && t.deadlines == nil {
			t.deadlines = []int64{}
		}
	}
	for i := range callers {
		c := &callers[i]
		if c.budgets != nil && t.accounts == nil {
			t.accounts = []limit.Call{}
		}
		if c.breakers != nil && t.permits == nil {
			t.permits = []breaker.Permit{}
		}
		if c.hedges != nil && t.firstOutcomes == nil {
			t.firstOutcomes = []retry.Outcome{}
		}
	}
}

// reserveCalls allocates room for n calls.
func (t *callTable) reserveCalls(n int) {
	t.calls = make([]call, 0, n)
	if t.accounts != nil {
		t.accounts = make([]limit.Call, 0, n)
	}
	if t.permits != nil {
		t.permits = make([]breaker.Permit, 0, n)
	}
}

// addCall adds a call without a parent and returns its index. If it reuses the index of
// a finished call, it continues that call's generation.
func (t *callTable) addCall(s stream, start int64) uint32 {
	if n := len(t.freeCalls); n > 0 {
		id := t.freeCalls[n-1]
		t.freeCalls = t.freeCalls[:n-1]
		c := &t.calls[id]
		gen := c.gen + 1
		*c = call{}
		c.stream, c.start, c.parent, c.jobs, c.gen = s, start, none, [2]uint32{none, none}, gen
		if t.deadlines != nil {
			t.deadlines[id] = 0
		}
		return id
	}
	t.calls = append(t.calls, call{stream: s, start: start, parent: none, jobs: [2]uint32{none, none}})
	if t.deadlines != nil {
		t.deadlines = append(t.deadlines, 0)
	}
	if t.accounts != nil {
		t.accounts = append(t.accounts, limit.Call{})
	}
	if t.permits != nil {
		t.permits = append(t.permits, breaker.Permit{})
	}
	if t.firstOutcomes != nil {
		t.firstOutcomes = append(t.firstOutcomes, retry.Outcome{})
	}
	return uint32(len(t.calls) - 1)
}

// account returns the budget account of a call; without budgets, one that
// grants everything.
func (t *callTable) account(id uint32) *limit.Call {
	if t.accounts == nil {
		return &t.unlimited
	}
	return &t.accounts[id]
}

// startAttempt makes the next attempt of a call, with breaker, timeout and
// hedge in the order of [retry.Runner].
func (w *serviceModel) startAttempt(id uint32) {
	c := &w.calls[id]
	r := &w.callers[c.caller]
	target := r.nextTarget(c)
	if w.permits != nil {
		var err error
		if target, w.permits[id], err = w.admitAttempt(r, c); err != nil {
			w.account(id).Cancel()
			w.finishCall(id, retry.StopBreaker)
			return
		}
	}
	c.attempts++
	c.gen++
	c.target, c.began, c.open = uint8(target), w.queue.now, 0
	if c.parent == none {
		w.recordAttempt(w.queue.now, int(c.attempts))
	}
	jobServer{w}.sendJob(id, 0)
	soon := w.knownDuration(id)
	if left := w.timeLeft(id); left > 0 && (soon >= left || r.hedges != nil) {
		w.queue.add(left, attemptLate, id, c.gen)
	}
	if r.hedges == nil {
		return
	}
	if after, ok := r.hedgeRule(w.process(c)).Begin(); ok && soon >= int64(after) {
		w.queue.add(int64(after), hedgeDue, id, c.gen)
	}
}

// knownDuration returns how long the attempt that was just sent will take, or the
// maximum if that is not known yet. A timer that would fire later than that need not
// be set.
func (w *serviceModel) knownDuration(id uint32) int64 {
	j := w.calls[id].jobs[0]
	if j == none || w.jobs[j].answer == 0 {
		return math.MaxInt64
	}
	return w.jobs[j].answer - w.queue.now
}

// deadline returns when the caller of the call's parent job stops waiting; 0 means
// never.
func (t *callTable) deadline(id uint32) int64 {
	if t.deadlines == nil {
		return 0
	}
	return t.deadlines[id]
}

// timeLeft returns how long the attempt in flight may take from its start; 0 means
// no limit.
func (w *serviceModel) timeLeft(id uint32) int64 {
	c := &w.calls[id]
	p := &w.callers[c.caller].Policy
	left := int64(p.AttemptTimeout)
	shorten := func(d int64) {
		if left == 0 || d < left {
			left = max(d, 1)
		}
	}
	if p.TotalTimeout > 0 {
		shorten(int64(p.TotalTimeout) - (c.began - c.start))
	}
	if deadline := w.deadline(id); deadline != 0 {
		shorten(deadline - c.began)
	}
	return left
}

// startHedge starts a hedge beside a slow attempt, if the hedge rule allows it
// and the attempt with this generation has not ended.
func (w *serviceModel) startHedge(id, gen uint32) {
	c := &w.calls[id]
	if c.gen&generations != gen || !w.callers[c.caller].hedgeRule(w.process(c)).Take() {
		return
	}
	w.hedges++
	jobServer{w}.sendJob(id, 1)
}

// expireAttempt ends an attempt that timed out, if the attempt with this
// generation has not ended. Its work continues at the service.
func (w *serviceModel) expireAttempt(id, gen uint32) {
	c := &w.calls[id]
	if c.gen&generations != gen {
		return
	}
	o := retry.Outcome{}
	if deadline := w.deadline(id); deadline != 0 && w.queue.now >= deadline {
		o.Class = retry.ClassCanceled
	}
	w.handleFailure(id, o)
}

// handleAnswer handles the answer of one of the attempt's jobs. The first
// success counts; a failure counts only if no other answer is expected.
func (w *serviceModel) handleAnswer(id uint32, slot uint8, ok bool, o retry.Outcome) {
	c := &w.calls[id]
	c.jobs[slot] = none
	c.open--
	if ok {
		if w.permits != nil || w.firstOutcomes != nil {
			w.recordSuccess(id)
		}
		w.finishCall(id, 0)
		return
	}
	if w.firstOutcomes != nil {
		if slot == 0 {
			w.firstOutcomes[id] = o
		} else if c.jobs[0] == none {
			o = w.firstOutcomes[id] // the outcome of the first attempt counts, as in a Hedger
		}
	}
	if c.open == 0 {
		w.handleFailure(id, o)
	}
}

// recordSuccess reports a success to the breaker and to the hedge rule, if there are
// any.
func (w *serviceModel) recordSuccess(id uint32) {
	c := &w.calls[id]
	if w.permits != nil {
		w.permits[id].DoneAt(time.Duration(w.queue.now), breaker.Success)
	}
	if r := &w.callers[c.caller]; r.hedges != nil {
		r.hedgeRule(w.process(c)).Answered(time.Duration(w.queue.now - c.began))
	}
}

// handleFailure decides what follows a failed attempt, as the runner does.
func (w *serviceModel) handleFailure(id uint32, o retry.Outcome) {
	c := &w.calls[id]
	w.abandonJobs(c)
	c.gen++
	if w.permits != nil {
		w.permits[id].DoneAt(time.Duration(w.queue.now), breaker.Failure)
	}
	account := w.account(id)
	if o.Class <= retry.ClassThrottled {
		account.Fail()
	}
	d := w.decide(id, account, o)
	if d.Stop != 0 {
		w.finishCall(id, d.Stop)
		return
	}
	c.prev = d.Prev
	w.queue.add(int64(d.Wait), attemptDue, id, 0)
}

// decide returns the library's decision about the next attempt.
func (w *serviceModel) decide(id uint32, account *limit.Call, o retry.Outcome) retry.Decision {
	c := &w.calls[id]
	r := &w.callers[c.caller]
	s := retry.State{Attempt: int(c.attempts), Prev: c.prev, Elapsed: time.Duration(w.queue.now - c.start)}
	if deadline := w.deadline(id); deadline != 0 {
		if s.Left = time.Duration(deadline - w.queue.now); s.Left == 0 {
			s.Left = -1
		}
	}
	var u uint64
	if r.needsRandom || o.After > 0 {
		u = c.stream.draw(forBackoff, uint64(c.attempts))
	}
	if r.Delay != nil && o.After == 0 && o.Class < retry.ClassPermanent {
		o.Delay = max(r.Delay(s, o, u), 0)
	}
	if r.literal {
		o.Delay, o.After = o.After, 0
	}
	return retry.DecideWithin(r.Policy, s, o, w.shutFor(r, c), account, u)
}

// abandonJobs detaches the attempt's jobs from the call. They continue at the
// service.
func (w *serviceModel) abandonJobs(c *call) {
	for i, j := range c.jobs {
		if j != none {
			w.jobs[j].call = none
			c.jobs[i] = none
		}
	}
}

// finishCall ends the call and reports it to its client or parent job. A reason
// of 0 means success.
func (w *serviceModel) finishCall(id uint32, why retry.Reason) {
	c, ok := &w.calls[id], why == 0
	w.abandonJobs(c)
	w.leaveBacklog(c)
	if w.accounts != nil {
		w.accounts[id].End(ok && !w.callers[c.caller].Prepaid)
	}
	c.gen++
	parent := c.parent
	if parent == none {
		arrivals{w}.endClientCall(c, why)
	}
	w.freeCalls = append(w.freeCalls, id)
	if parent != none {
		jobServer{w}.answerJob(parent, ok)
	}
}

// leaveBacklog removes the call from a service's backlog.
func (w *serviceModel) leaveBacklog(c *call) {
	if c.backlogOf > 0 {
		w.services[c.backlogOf-1].backlog--
		c.backlogOf = 0
	}
}
