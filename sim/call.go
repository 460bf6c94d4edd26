package sim

import (
	"math"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// none is the index of nothing.
const none = ^uint32(0)

// call is one operation with its attempts, as [retry.Runner] would make them.
type call struct {
	stream   stream
	start    int64
	began    int64 // when the attempt under way did
	deadline int64 // when whoever waits for it goes; 0 means never
	prev     time.Duration
	client   uint32
	process  uint32
	parent   uint32 // the job of a service that waits for it; none for a client's call
	attempts uint32
	gen      uint32    // changes whenever timers of before no longer count
	jobs     [2]uint32 // of the attempt and its hedge
	caller   uint8
	target   uint8 // of the attempt under way
	open     uint8 // answers that are still to come
	turned   uint8 // 1 + the service whose backlog it stands in; 0 for none
	priority limit.Priority
}

// begin makes a call.
func (w *services) begin(c call) {
	id := w.newCall(c)
	if w.accounts != nil {
		w.accounts[id] = w.callers[c.caller].account(c.process)
	}
	w.attempt(id)
}

// expect makes room for so many calls at once.
func (w *services) expect(n int) {
	w.calls = make([]call, 0, n)
	if w.accounts != nil {
		w.accounts = make([]limit.Call, 0, n)
	}
	if w.permits != nil {
		w.permits = make([]breaker.Permit, 0, n)
	}
}

// newCall finds a place for a call. Its generation goes on from the last call
// that had the place.
func (w *services) newCall(c call) uint32 {
	c.jobs = [2]uint32{none, none}
	if n := len(w.freeCalls); n > 0 {
		id := w.freeCalls[n-1]
		w.freeCalls = w.freeCalls[:n-1]
		c.gen = w.calls[id].gen + 1
		w.calls[id] = c
		return id
	}
	w.calls = append(w.calls, c)
	if w.accounts != nil {
		w.accounts = append(w.accounts, limit.Call{})
	}
	if w.permits != nil {
		w.permits = append(w.permits, breaker.Permit{})
	}
	if w.verdicts != nil {
		w.verdicts = append(w.verdicts, retry.Outcome{})
	}
	return uint32(len(w.calls) - 1)
}

// account returns the account of a call; without budgets one that grants all.
func (w *services) account(id uint32) *limit.Call {
	if w.accounts == nil {
		return &w.unlimited
	}
	return &w.accounts[id]
}

// attempt makes the next attempt of a call, in the runner's order: breaker,
// timeout, hedge, operation.
func (w *services) attempt(id uint32) {
	c := &w.calls[id]
	r := &w.callers[c.caller]
	target, permit, err := r.admit(c, w.queue.now, w.root)
	if err != nil {
		w.account(id).Cancel()
		w.finish(id, retry.StopBreaker)
		return
	}
	if w.permits != nil {
		w.permits[id] = permit
	}
	c.attempts++
	c.gen++
	c.target, c.began, c.open = uint8(target), w.queue.now, 0
	if c.parent == none {
		w.attempted(w.queue.now, int(c.attempts))
	}
	w.send(id, 0)
	soon := w.answersIn(id)
	if left := c.left(&r.policy); left > 0 && (soon >= left || r.hedges != nil) {
		w.queue.add(left, attemptLate, id, c.gen)
	}
	if r.hedges == nil {
		return
	}
	if after, ok := r.rule(c.process).Begin(); ok && soon >= int64(after) {
		w.queue.add(int64(after), hedgeDue, id, c.gen)
	}
}

// answersIn returns how long the attempt that was just sent will take, if that
// is known already: a timer that can't fire is not set.
func (w *services) answersIn(id uint32) int64 {
	j := w.calls[id].jobs[0]
	if j == none || w.jobs[j].answer == 0 {
		return math.MaxInt64
	}
	return w.jobs[j].answer - w.queue.now
}

// left returns how long the attempt that begins may take; 0 for as long as it
// likes.
func (c *call) left(p *retry.Policy) int64 {
	left := int64(p.AttemptTimeout)
	shorten := func(d int64) {
		if left == 0 || d < left {
			left = max(d, 1)
		}
	}
	if p.TotalTimeout > 0 {
		shorten(int64(p.TotalTimeout) - (c.began - c.start))
	}
	if c.deadline != 0 {
		shorten(c.deadline - c.began)
	}
	return left
}

// hedge starts a second attempt beside a slow one.
func (w *services) hedge(id, gen uint32) {
	c := &w.calls[id]
	if c.gen&generations != gen || !w.callers[c.caller].rule(c.process).Take() {
		return
	}
	w.hedges++
	w.send(id, 1)
}

// late ends an attempt whose time is over. Its work goes on without it.
func (w *services) late(id, gen uint32) {
	c := &w.calls[id]
	if c.gen&generations != gen {
		return
	}
	o := retry.Outcome{}
	if c.deadline != 0 && w.queue.now >= c.deadline {
		o.Class = retry.ClassCanceled
	}
	w.failed(id, o)
}

// answered takes the answer of one of the attempt's jobs. The first success
// counts; a failure only when no other answer is to come.
func (w *services) answered(id uint32, slot uint8, ok bool, o retry.Outcome) {
	c := &w.calls[id]
	c.jobs[slot] = none
	c.open--
	if ok {
		w.succeeded(id)
		return
	}
	if w.verdicts != nil {
		if slot == 0 {
			w.verdicts[id] = o
		} else if c.jobs[0] == none {
			o = w.verdicts[id] // that of the first, as with a Hedger
		}
	}
	if c.open == 0 {
		w.failed(id, o)
	}
}

func (w *services) succeeded(id uint32) {
	c := &w.calls[id]
	if w.permits != nil {
		w.permits[id].DoneAt(time.Duration(w.queue.now), breaker.Success)
	}
	if r := &w.callers[c.caller]; r.hedges != nil {
		r.rule(c.process).Answered(time.Duration(w.queue.now - c.began))
	}
	w.finish(id, 0)
}

// failed decides what follows a failed attempt, as the runner does.
func (w *services) failed(id uint32, o retry.Outcome) {
	c := &w.calls[id]
	w.abandon(c)
	c.gen++
	if w.permits != nil {
		w.permits[id].DoneAt(time.Duration(w.queue.now), breaker.Failure)
	}
	account := w.account(id)
	if o.Class <= retry.ClassThrottled {
		account.Fail()
	}
	d := w.decide(c, account, o)
	if d.Stop != 0 {
		w.finish(id, d.Stop)
		return
	}
	c.prev = d.Prev
	w.queue.add(int64(d.Wait), attemptDue, id, 0)
}

// decide asks the library.
func (w *services) decide(c *call, account *limit.Call, o retry.Outcome) retry.Decision {
	r := &w.callers[c.caller]
	s := retry.State{Attempt: int(c.attempts), Prev: c.prev, Elapsed: time.Duration(w.queue.now - c.start)}
	if c.deadline != 0 {
		if s.Left = time.Duration(c.deadline - w.queue.now); s.Left == 0 {
			s.Left = -1
		}
	}
	var u uint64
	if r.draws || o.After > 0 {
		u = c.stream.draw(forBackoff, uint64(c.attempts))
	}
	if r.delay != nil && o.After == 0 && o.Class < retry.ClassPermanent {
		o.Delay = max(r.delay(s, o, u), 0)
	}
	if r.literal {
		o.Delay, o.After = o.After, 0
	}
	return retry.DecideWithin(r.policy, s, o, r.shutFor(c.process, w.queue.now, w.root), account, u)
}

// abandon leaves the attempt's jobs to themselves.
func (w *services) abandon(c *call) {
	for i, j := range c.jobs {
		if j != none {
			w.jobs[j].call = none
			c.jobs[i] = none
		}
	}
}

// finish ends the call, with a success unless there is a reason, and tells who
// waits for it.
func (w *services) finish(id uint32, why retry.Reason) {
	c, ok := &w.calls[id], why == 0
	w.abandon(c)
	w.leave(c)
	if w.accounts != nil {
		w.accounts[id].End(ok && !w.callers[c.caller].prepaid)
	}
	c.gen++
	parent := c.parent
	if parent == none {
		w.ended(c, why)
	}
	w.freeCalls = append(w.freeCalls, id)
	if parent != none {
		w.complete(parent, ok)
	}
}

// leave takes the call out of a service's backlog.
func (w *services) leave(c *call) {
	if c.turned > 0 {
		w.services[c.turned-1].backlog--
		c.turned = 0
	}
}
