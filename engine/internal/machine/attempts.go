package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tideover/tideover/retry"
)

// BeginAttempt decides to begin an attempt of a queued step. The attempt's deadline is the earliest of
// three: the end of the attempt timeout, the end of the step's total timeout, and the run's
// deadline.
func BeginAttempt(r *Run, step int, now int64) Record {
	s, p := r.Step(step), &r.StepDef(step).Policy
	return Record{Kind: Begun, Run: r.ID, Step: step, At: now, Attempt: int(s.Attempt) + 1, Deadline: attemptEnd(r, p, cmp.Or(s.First, now), now)}
}

// Finish decides what follows the end of an attempt: success, failure, or a wait. ok is false if
// the state has no such running attempt. u is a uniform random number.
func (c Commands) Finish(res *Result, now int64, u uint64) (rec Record, ok bool) {
	r, known := c.Run(res.Run)
	if !known || !isRunning(r, res.Step, res.Attempt) {
		return rec, false
	}
	rec = Record{Run: res.Run, Step: res.Step, At: now, Attempt: res.Attempt}
	switch {
	case r.Outcome != Undecided:
		rec.Kind, rec.Text = Late, late(res)
	case !res.Succeeded() && endsNow(r, res.Step):
		rec.Kind, rec.Text = Failed, res.Error
		setFailure(&rec, r, &Result{Code: canceledOp}, retry.StopCanceled)
	case res.Limited:
		limitedRecord(&rec, r, res, u)
	case res.Snooze > 0 || res.Until != 0:
		snoozedRecord(&rec, res)
	case res.Release:
		rec.Kind, rec.Text, rec.Data = Released, res.Error, res.Memo
	case res.Failed:
		failedRecord(&rec, r, res, u)
	default:
		rec.Kind, rec.Data = Done, res.Output
		if rec.Data == nil {
			rec.Data = []byte("null")
		}
	}
	if rec.Reason != 0 && r.flow != nil && rec.Step > 0 {
		rec.Text = fitError(r.flow, rec.Text)
	}
	rec.Ends = outcomeAfter(r, &rec)
	return rec, true
}

// isRunning reports whether an attempt of a step is running.
func isRunning(r *Run, step, attempt int) bool {
	return isLive(r, step) && r.Step(step).Status == Running && int(r.Step(step).Attempt) == attempt
}

// snoozedRecord completes the record of an attempt that has not failed, and is to be made again.
func snoozedRecord(rec *Record, res *Result) {
	rec.Kind, rec.By, rec.Text, rec.Data = Snoozed, retry.ByHandler, res.Error, res.Memo
	rec.Delay, rec.Due = res.Snooze, later(rec.At, res.Snooze)
	if res.Until != 0 {
		rec.Delay, rec.Due, rec.Clock = time.Duration(max(res.Until-rec.At, 0)), res.Until, true
	}
}

// failedRecord completes the record of a failed attempt. The policy decides whether the step
// waits or gives up.
func failedRecord(rec *Record, r *Run, res *Result, u uint64) {
	s := r.Step(res.Step)
	state := retry.State{Attempt: int(s.Spent) + 1, Prev: s.Prev, Elapsed: time.Duration(rec.At - s.First), Left: timeLeft(r, rec.At)}
	if healthy(r, res.Step, rec.At) {
		state.Attempt, state.Prev, state.Elapsed = 1, 0, time.Duration(rec.At-s.At)
	}
	d := retry.Decide(r.StepDef(res.Step).Policy, state, res.Outcome, retry.Gates{}, u)
	rec.Kind, rec.Text, rec.Data, rec.Prev = Failed, res.Error, res.Memo, d.Prev
	if d.Stop == retry.StopPermanent && res.Reason != 0 {
		d.Stop = res.Reason
	}
	setFailure(rec, r, res, d.Stop)
	if d.Stop == 0 {
		rec.Delay, rec.By, rec.Due = d.Wait, d.By, later(rec.At, d.Wait)
	}
}

// limitedRecord completes the record of an attempt that returned Limited, because a service has
// said when to come back. Such an attempt uses one of the step's windows: see Step.Windows. The
// step gives up if no window is left, or if the wait is longer than the policy allows.
func limitedRecord(rec *Record, r *Run, res *Result, u uint64) {
	def := r.StepDef(res.Step)
	p := def.Policy
	p.Attempts, p.TotalTimeout = retry.Unlimited, 0
	after := res.Snooze
	if res.Until != 0 {
		after = time.Duration(res.Until - rec.At)
	}
	d := retry.Decide(p, retry.State{Attempt: 1, Left: timeLeft(r, rec.At)}, retry.Outcome{After: max(after, 1)}, retry.Gates{}, u)
	rec.Kind, rec.Text, rec.Data = Failed, res.Error, res.Memo
	switch {
	case int(r.Step(res.Step).Windows) >= cmp.Or(def.Windows, DefaultWindows):
		setFailure(rec, r, res, retry.StopWindows)
	case d.Stop == retry.StopServerWait:
		setFailure(rec, r, res, d.Stop)
		rec.Text = fmt.Sprintf("%s; that is %v ahead, and server-wait grants %v", res.Error, after.Round(time.Second), cmp.Or(p.ServerWait, retry.DefaultServerWait))
	case d.Stop != 0:
		setFailure(rec, r, res, d.Stop)
	default:
		rec.Kind, rec.Delay, rec.By, rec.Due, rec.Clock = Limited, d.Wait, d.By, later(rec.At, d.Wait), res.Until != 0
		if res.Now {
			rec.Delay, rec.Due, rec.Clock = 0, rec.At, false
		}
	}
}

// setFailure sets why the step gives up. In a flow the record has no memo then: it has the code
// of a failed operation, or the operations that made the function fail. The code of a function or of
// a step is for the parent of the run.
func setFailure(rec *Record, r *Run, res *Result, why retry.Reason) {
	rec.Reason = why
	if why != 0 && (r.flow == nil || rec.Step == 0) {
		setCode(rec, res.Code)
	}
	switch {
	case why == 0 || r.flow == nil:
	case rec.Step == 0:
		rec.Data = res.Redo
	default:
		rec.Data = []byte(cmp.Or(res.Code, why.String()))
	}
}

// outcomeAfter returns the outcome of the run after the end of an attempt; Undecided if the
// run has not ended.
func outcomeAfter(r *Run, rec *Record) Outcome {
	switch {
	case r.Outcome != Undecided || r.running > 1:
		return Undecided
	case r.flow != nil && rec.Step > 0: // the function may have ended before an operation that it did not wait for
		switch {
		case r.Failing:
			return Dead
		case r.done > 0:
			return Succeeded
		}
		return Undecided
	case r.flow != nil && rec.Kind == Done:
		return Succeeded
	case rec.Kind == Done && int(r.done)+1 == len(r.Steps):
		return Succeeded
	case r.Failing || rec.Reason != 0:
		return Dead
	}
	return Undecided
}

// LoseAttempt decides what follows an attempt that was lost because the process died: another attempt
// after a delay, or the step gives up. The step gives up after more than MaxLost losses if the
// last attempt ran alone: otherwise another attempt may have ended the process. With a MaxLost
// of 0 it gives up at the first loss.
func LoseAttempt(r *Run, step int, now int64, alone bool) Record {
	s, most := r.Step(step), r.StepDef(step).MaxLost
	lost := int(s.Lost) + 1
	rec := Record{Kind: Lost, Run: r.ID, Step: step, At: now, Attempt: int(s.Attempt)}
	switch {
	case r.Outcome != Undecided:
		rec.Due = now
	case endsNow(r, step), most == 0 || lost > most && alone:
		setFailure(&rec, r, &Result{}, retry.StopLost)
	default:
		rec.By, rec.Delay, rec.Due = retry.ByEngine, lostDelay(lost), later(now, lostDelay(lost))
	}
	rec.Text = lostText(lost, alone)
	rec.Ends = outcomeAfter(r, &rec)
	return rec
}

// lostText returns the error text after this many lost attempts in a row.
func lostText(lost int, alone bool) string {
	text := "the process died while this attempt ran"
	if lost > 1 {
		text = fmt.Sprintf("the process died %d times in a row while an attempt of this step ran", lost)
	}
	if alone {
		text += "; this time no other attempt ran"
	}
	return text
}

// RanAlone reports whether the running attempt of a step was the only one in its process. That is
// true if the attempt began in isolation, and the log has no entry from after the isolation, when
// other attempts could begin. RanAlone must be called before a change of the clock is applied.
func (c Commands) RanAlone(r *Run, step int) bool {
	var isolated time.Duration
	for rec := range r.Records() {
		if rec.Kind == Begun && rec.Step == step {
			isolated = rec.Isolation()
		}
	}
	return isolated > 0 && c.at < later(r.Step(step).At, isolated)
}

// Expire decides that a run has timed out. If the run was in a queue because a limit was reached,
// the text of the record says so. opened is when this process took over the run: the run was in
// no queue before that.
func (c Commands) Expire(r *Run, opened, now int64) Record {
	_ = c.warm(r) // Apply returns the error
	rec := Record{Kind: Expired, Run: r.ID, At: now, Ends: Dead}
	if mustUndo(r) {
		return undoingRecord(r.ID, Dead, retry.StopTimeout, fmt.Sprintf("timed out after %v", timeout(r)), now)
	}
	since, queued := queuedSince(r)
	switch took := timeout(r); {
	case !queued || took == 0:
	case r.Pause() != nil:
		rec.Text = fmt.Sprintf("timed out after %v while its workflow was paused", took)
	case r.Deadline < opened:
		rec.Text = fmt.Sprintf("timed out after %v: no process was working on the run when its time ended", took)
	case hasBegun(r):
		rec.Text = fmt.Sprintf("timed out after %v, the last %v of it in the queue for a free place",
			took, time.Duration(now-max(since, opened)).Round(time.Millisecond))
	default:
		rec.Text = fmt.Sprintf("timed out after %v in the queue for a free place; it never began", took)
	}
	return rec
}

// queuedSince returns when the first queued step of the run became due. queued is false if the
// run is not in the state queued.
func queuedSince(r *Run) (at int64, queued bool) {
	if r.State() != StateQueued {
		return 0, false
	}
	for i := range r.Steps {
		if s := &r.Steps[i]; s.queued && (!queued || s.At < at) {
			at, queued = s.At, true
		}
	}
	return at, queued
}

// Report decides to record the progress of an attempt. ok is false if the attempt is not
// running.
func (c Commands) Report(id ID, step, attempt int, progress json.RawMessage, now int64) (rec Record, ok bool) {
	r, known := c.Run(id)
	if !known || !isRunning(r, step, attempt) {
		return rec, false
	}
	return Record{Kind: Progress, Run: id, Step: step, Attempt: attempt, At: now, Data: progress}, true
}

// Park decides that a step waits until its handler is registered.
func Park(r *Run, step int, now int64) Record {
	return Record{Kind: Parked, Run: r.ID, Step: step, At: now, Text: r.StepDef(step).Handler}
}

// Unpark decides that a parked step continues, because its handler is registered now.
func Unpark(r *Run, step int, now int64) Record {
	return Record{Kind: Unparked, Run: r.ID, Step: step, At: now}
}

// endsNow reports whether an operation gives up after an attempt that did not succeed, whatever
// its policy says, because the run is undoing.
func endsNow(r *Run, step int) bool { return step > 0 && r.flow.IsUndoing() && !r.flow.IsUndo(step) }

// healthy reports whether the attempt that ends at this time has lasted for the policy's
// ResetAfter, so that earlier failures do not count any more.
func healthy(r *Run, step int, at int64) bool {
	after := r.StepDef(step).Policy.ResetAfter
	return after > 0 && at-r.Step(step).At >= int64(after)
}

// attemptEnd returns the deadline of an attempt that begins now. first is when the first attempt began.
func attemptEnd(r *Run, p *retry.Policy, first, now int64) int64 {
	end := r.Deadline
	least := func(t int64) {
		if end == 0 || t < end {
			end = t
		}
	}
	if p.AttemptTimeout > 0 {
		least(later(now, p.AttemptTimeout))
	}
	if p.TotalTimeout > 0 {
		least(later(first, p.TotalTimeout))
	}
	return end
}

// timeLeft returns the time until the run's deadline, in the form of [retry.State]: 0 means no
// deadline, and a negative value means that it is over.
func timeLeft(r *Run, now int64) time.Duration {
	if r.Deadline == 0 {
		return 0
	}
	return cmp.Or(time.Duration(r.Deadline-now), -1)
}
