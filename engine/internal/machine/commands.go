package machine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// The errors of rejected commands.
var (
	ErrUnknown  = errors.New("no such run")
	ErrState    = errors.New("not possible now")
	ErrConflict = errors.New("key is taken")
)

// Commands turns commands of users, and the ends of attempts, into records. Each method returns
// the record for [Machine.Apply], or an error that says why the command is rejected. A method
// does not change the state, except that it reads cold runs back into memory: see
// [Snapshot.Chill].
type Commands struct {
	*state
}

// Start is a request to start a run.
type Start struct {
	ID      ID
	Hash    Hash
	Key     string
	Source  string // who starts the run
	Input   []byte
	At      int64         // when to begin, by the wall clock; 0 means now
	In      time.Duration // how long to wait before the run begins; above 0 it replaces At
	Timeout time.Duration // 0 means the timeout of the definition
	Outputs [][]byte      // outputs of steps that do not run again; nil for the others
	Trace   string        // trace context of the starter; "" for none. A run that repeats another has none

	Continues ID     // the run that it continues, whose key it gets; zero for none
	Inbox     []byte // of a run that continues another one: see Run.Inbox
	Parent    Parent // the operation that starts the run; zero for none

	// The following fields are set only for a run that repeats another.

	Previous  ID     // the run that it repeats
	Origin    ID     // the first run of the chain of repetitions
	OriginKey string // the key of the run Origin
	Undos     int    // how often the operations of these runs were undone: see Run.AllUndos
}

// Start decides to start a run. If a run of the same workflow has the key, Start returns the id
// of that run as existing, and no record. If a run of another workflow has the key, the error is
// ErrConflict.
func (c Commands) Start(req *Start, now int64) (rec Record, existing ID, err error) {
	if !c.stored(req.Hash) {
		return rec, ID{}, errors.New("definition is not stored")
	}
	d := c.defs[req.Hash]
	if req.Key != "" {
		if k, taken := c.keys[req.Key]; taken && (k.id != req.Continues || req.Continues.IsZero()) {
			if k.of != d.workflow {
				return rec, ID{}, fmt.Errorf("%w: %q by run %s of workflow %q", ErrConflict, req.Key, k.id, k.of.Name)
			}
			return rec, k.id, nil
		}
	}
	if len(req.Outputs) >= len(d.Steps) && !slices.ContainsFunc(req.Outputs[:len(d.Steps)], func(out []byte) bool { return out == nil }) {
		return rec, ID{}, fmt.Errorf("%w: all steps have their outputs, and nothing is left to run", ErrState)
	}
	source, _, _ := strings.Cut(req.Source, "\x00") // in the record a zero byte separates source and key
	rec = Record{
		Kind: Started, Run: req.ID, At: now, Hash: req.Hash, Data: req.Input, Other: req.Previous, Outputs: req.outputs(len(d.Steps)),
		Text: source + "\x00" + req.Key, format: d.format(),
	}
	if !req.Parent.Run.IsZero() {
		rec.format = flowFormat
	}
	begin := now
	at := req.At
	if req.In > 0 {
		at, rec.Delay = later(now, req.In), req.In
	}
	if at > now {
		rec.Due, begin = at, at
	}
	if timeout := cmp.Or(req.Timeout, d.Timeout); timeout > 0 {
		rec.Deadline = later(begin, timeout)
	}
	return rec, ID{}, nil
}

// outputs returns the outputs for the record. One more element may follow the outputs of the
// steps: the first run of the chain of repetitions if the run repeats another one, else the trace
// context. Older versions ignore this element. The next ones have the signals of the run that this
// one continues, and the parent.
func (s *Start) outputs(steps int) [][]byte {
	more := s.Trace
	if !s.Origin.IsZero() {
		more = encodeOrigin(s.Origin, s.OriginKey, s.Undos)
	}
	hasParent := !s.Parent.Run.IsZero()
	if more == "" && s.Inbox == nil && !hasParent {
		return s.Outputs
	}
	list := make([][]byte, steps+1)
	copy(list[:steps], s.Outputs)
	list[steps] = []byte(more)
	if s.Inbox != nil || hasParent {
		list = append(list, s.Inbox)
	}
	if hasParent {
		list = append(list, s.Parent.encode())
	}
	return list
}

// later returns t + d, or the largest int64 if that overflows.
func later(t int64, d time.Duration) int64 {
	if s := t + int64(d); s >= t {
		return s
	}
	return 1<<63 - 1
}

// Cancel decides to cancel a run. A dead run may be canceled too: it can't be retried then. A run
// with operations that can be undone undoes them first.
func (c Commands) Cancel(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err == nil && (r.Outcome == Succeeded || r.Outcome == Canceled || r.Finished()) {
		err = fmt.Errorf("%w: run %s is %s, and can't be canceled", ErrState, id, r.State())
	}
	switch {
	case err != nil:
	case r.mustUndo():
		return undoingRecord(r, Canceled, retry.StopCanceled, by, now), nil
	case r.IsUndoing() && r.Outcome == Undecided:
		err = fmt.Errorf("%w: run %s undoes its operations; wait for its end, or abandon it (tideover cancel --abandon)", ErrState, id)
	}
	return Record{Kind: Cancel, Run: id, At: now, Text: by, Ends: Canceled}, err
}

// Retry decides to continue a dead run.
func (c Commands) Retry(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	switch {
	case err != nil:
		return Record{}, err
	case r.Outcome != Dead:
		return Record{}, fmt.Errorf("%w: run %s is %s, and only a dead one can be retried", ErrState, id, r.State())
	case !r.ReplacedBy().IsZero():
		return Record{}, fmt.Errorf("%w: run %s was replaced by %s", ErrState, id, r.ReplacedBy())
	case !r.Closed():
		return Record{}, fmt.Errorf("%w: an attempt of run %s is still being stopped", ErrState, id)
	case r.mustCancel():
		return Record{}, fmt.Errorf("%w: children of run %s are still being canceled", ErrState, id)
	}
	rec := Record{Kind: Retry, Run: id, At: now, Text: by}
	if r.RetriesChildren() {
		rec.Count, rec.format = 1, ChildFormat
	}
	if limit := timeout(r); limit > 0 && !r.IsUndoing() {
		rec.Deadline = later(now, limit)
	}
	return rec, nil
}

// timeout returns the timeout that the run was started with; 0 if it has none.
func timeout(r *Run) time.Duration {
	for rec := range r.Records() {
		if rec.Kind == Started && rec.Deadline != 0 {
			return time.Duration(rec.Deadline - max(rec.Due, rec.At))
		}
		break
	}
	return 0
}

// OwnTimeout returns the timeout that the run was started with, if it is not that of its
// definition; else 0. The run must not be cold.
func (r *Run) OwnTimeout() time.Duration {
	if own := timeout(r); own != r.Def.Timeout {
		return own
	}
	return 0
}

// Wake decides to end the waits of a run now. It returns a record for each waiting step.
func (c Commands) Wake(id ID, by string, now int64) (recs []Record, err error) {
	r, err := c.find(id)
	if err != nil {
		return nil, err
	}
	for n, s := range r.Live() {
		if r.Outcome == Undecided && !r.Failing && s.Status == Waiting && s.At > now && !r.IsAwait(n) {
			recs = append(recs, Record{Kind: Woken, Run: id, Step: n, At: now, Text: by, By: retry.ByHuman})
		}
	}
	if len(recs) == 0 {
		return nil, fmt.Errorf("%w: run %s is %s, and no step of it waits%s", ErrState, id, r.State(), r.awaitedHint())
	}
	return recs, nil
}

// Hold decides to pause a run.
func (c Commands) Hold(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err == nil && (r.Outcome != Undecided || r.Held) {
		err = fmt.Errorf("%w: run %s is %s", ErrState, id, r.State())
	}
	return Record{Kind: Held, Run: id, At: now, Text: by}, err
}

// Free decides to resume a paused run.
func (c Commands) Free(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err == nil && !r.Held {
		err = fmt.Errorf("%w: run %s is %s, and not paused", ErrState, id, r.State())
	}
	return Record{Kind: Freed, Run: id, At: now, Text: by}, err
}

// Postpone decides that a run waits until a point in time by the wall clock. It moves the run's
// waits to that time, cancels its running attempts, and makes them again at that time. It returns
// a record for each step that is affected.
func (c Commands) Postpone(id ID, until int64, by string, now int64) (recs []Record, err error) {
	r, err := c.find(id)
	if err != nil {
		return nil, err
	}
	for n, s := range r.Live() {
		if r.begun() && r.Outcome == Undecided && !r.Failing && (s.Status == Running || s.Status == Waiting && s.At != until && !r.IsAwait(n)) {
			recs = append(recs, Record{
				Kind: Postponed, Run: id, Step: n, At: now, Due: until, Delay: time.Duration(until - now), Text: by, By: retry.ByHuman, Clock: true,
			})
		}
	}
	if len(recs) == 0 {
		return nil, fmt.Errorf("%w: run %s is %s, and no step of it can be postponed%s", ErrState, id, r.State(), r.awaitedHint())
	}
	return recs, nil
}

// Forgive decides to reset three counters of each step of a run: the attempts that count for the
// retry policy, the attempts that returned Limited, and the lost attempts.
func (c Commands) Forgive(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err == nil && r.Outcome != Undecided {
		err = fmt.Errorf("%w: run %s is %s; retry it", ErrState, id, r.State())
	}
	return Record{Kind: Forgiven, Run: id, At: now, Text: by}, err
}

// Replace decides to mark the dead run id as replaced by the run by.
func (c Commands) Replace(id, by ID, now int64) (Record, error) {
	r, err := c.find(id)
	if err == nil && (!r.Closed() || r.Outcome != Dead || !r.ReplacedBy().IsZero()) {
		err = fmt.Errorf("%w: run %s is %s, and only a dead one can be replaced", ErrState, id, r.State())
	}
	return Record{Kind: Replaced, Run: id, At: now, Other: by}, err
}

// Read returns a run that is in memory, and reads it back if it is cold.
func (c Commands) Read(id ID) (*Run, error) { return c.find(id) }

func (c Commands) find(id ID) (*Run, error) {
	if r, ok := c.Run(id); ok {
		return r, c.warm(r)
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
}

// Define decides to store a definition. ok is false if it is stored already.
func (c Commands) Define(d *Definition, now int64) (rec Record, ok bool) {
	if c.stored(d.hash) {
		return rec, false
	}
	return Record{Kind: Defined, At: now, Data: d.text, format: d.format()}, true
}

// maxKept is the number of dead runs that one record of kind Purged can list as kept.
const maxKept = 20_000

// Purge decides to delete old runs: runs that finished before the time ended, and runs that died
// before the time dead. It keeps the dead runs in keep, but at most maxKept of them. ok is false
// if there is nothing to delete.
func (c Commands) Purge(ended, dead int64, keep map[ID]bool) (rec Record, ok bool) {
	rec = Record{Kind: Purged, At: ended, Due: dead}
	ok = len(c.ended) > 0 && c.ended[0].at < ended || c.hasUnused(min(ended, dead))
	for _, r := range c.all {
		switch {
		case !r.Closed() || r.Finished() || r.Ended >= dead || r.IsNeeded():
		case keep[r.ID] && len(rec.Data) < maxKept*len(ID{}):
			rec.Data = append(rec.Data, r.ID[:]...)
		default:
			ok = true
		}
	}
	return rec, ok
}

// Attempt decides to begin an attempt of a queued step. The attempt's deadline is the earliest of
// three: the end of the attempt timeout, the end of the step's total timeout, and the run's
// deadline.
func (c Commands) Attempt(r *Run, step int, now int64) Record {
	s, p := r.Step(step), &r.StepDef(step).Policy
	return Record{Kind: Begun, Run: r.ID, Step: step, At: now, Attempt: int(s.Attempt) + 1, Deadline: attemptEnd(r, p, cmp.Or(s.First, now), now)}
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

// Result says how an attempt ended.
type Result struct {
	Run     ID
	Step    int
	Attempt int
	Output  []byte        // output, if the attempt succeeded
	Error   string        // error or note, if it did not
	Failed  bool          // the attempt failed, as Outcome says
	Outcome retry.Outcome // how the attempt failed
	Snooze  time.Duration // if not 0, the attempt has not failed: make the next one after this wait
	Until   int64         // if not 0: like Snooze, until a point in time by the wall clock
	Limited bool          // Snooze or Until is when a service has asked to come back: it uses a window
	Now     bool          // with Limited: the next attempt begins at once
	Release bool          // the attempt has not failed: the process ends, or the run is paused
	Memo    []byte        // memo for the next attempt; nil for none
	Code    string        // code of the failure
	Redo    []byte        // of a function: see EncodeRedo
	Reason  retry.Reason  // of a function that failed for good: why, if that is known better than from Outcome
}

// Finish decides what follows the end of an attempt: success, failure, or a wait. ok is false if
// the state has no such running attempt. u is a uniform random number.
func (c Commands) Finish(res *Result, now int64, u uint64) (rec Record, ok bool) {
	r, known := c.Run(res.Run)
	if !known || !r.has(res.Step) {
		return rec, false
	}
	s := r.Step(res.Step)
	if s.Status != Running || int(s.Attempt) != res.Attempt {
		return rec, false
	}
	rec = Record{Run: res.Run, Step: res.Step, At: now, Attempt: res.Attempt}
	switch {
	case r.Outcome != Undecided:
		rec.Kind, rec.Text = Late, late(res)
	case !res.Succeeded() && r.endsNow(res.Step):
		rec.Kind, rec.Text = Failed, res.Error
		setFailure(&rec, r, &Result{Code: canceledOp}, retry.StopCanceled)
	case res.Limited:
		limitedRecord(&rec, r, res, u)
	case res.Snooze > 0 || res.Until != 0:
		rec.Kind, rec.By, rec.Text, rec.Data = Snoozed, retry.ByHandler, res.Error, res.Memo
		rec.Delay, rec.Due = res.Snooze, later(now, res.Snooze)
		if res.Until != 0 {
			rec.Delay, rec.Due, rec.Clock = time.Duration(max(res.Until-now, 0)), res.Until, true
		}
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
		rec.Text = r.flow.fitError(rec.Text)
	}
	rec.Ends = outcomeAfter(r, &rec)
	return rec, true
}

// late returns the text of the record for an attempt that ended after its run.
func late(res *Result) string {
	if res.Failed || res.Release || res.Limited || res.Snooze > 0 || res.Until != 0 {
		return res.Error
	}
	return "succeeded too late; the result is dropped"
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
	if why != 0 && res.Code != "" && (r.flow == nil || rec.Step == 0) {
		rec.Outputs = [][]byte{[]byte(res.Code)}
	}
	switch {
	case why == 0 || r.flow == nil:
	case rec.Step == 0:
		rec.Data = res.Redo
	default:
		rec.Data = []byte(cmp.Or(res.Code, why.String()))
	}
}

// timeLeft returns the time until the run's deadline, in the form of [retry.State]: 0 means no
// deadline, and a negative value means that it is over.
func timeLeft(r *Run, now int64) time.Duration {
	if r.Deadline == 0 {
		return 0
	}
	return cmp.Or(time.Duration(r.Deadline-now), -1)
}

// healthy reports whether the attempt that ends at this time has lasted for the policy's
// ResetAfter, so that earlier failures do not count any more.
func healthy(r *Run, step int, at int64) bool {
	after := r.StepDef(step).Policy.ResetAfter
	return after > 0 && at-r.Step(step).At >= int64(after)
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

// Lose decides what follows an attempt that was lost because the process died: another attempt
// after a delay, or the step gives up. The step gives up after more than MaxLost losses if the
// last attempt ran alone: otherwise another attempt may have ended the process. With a MaxLost
// of 0 it gives up at the first loss.
func (c Commands) Lose(r *Run, step int, now int64, alone bool) Record {
	s, most := r.Step(step), r.StepDef(step).MaxLost
	lost := int(s.Lost) + 1
	rec := Record{Kind: Lost, Run: r.ID, Step: step, At: now, Attempt: int(s.Attempt)}
	switch {
	case r.Outcome != Undecided:
		rec.Due = now
	case r.endsNow(step), most == 0 || lost > most && alone:
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
			isolated = rec.Delay
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
	if r.mustUndo() {
		return undoingRecord(r, Dead, retry.StopTimeout, fmt.Sprintf("timed out after %v", timeout(r)), now)
	}
	since, queued := queuedSince(r)
	switch took := timeout(r); {
	case !queued || took == 0:
	case r.Pause() != nil:
		rec.Text = fmt.Sprintf("timed out after %v while its workflow was paused", took)
	case r.Deadline < opened:
		rec.Text = fmt.Sprintf("timed out after %v: no process was working on the run when its time ended", took)
	case r.begun():
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
	if !known || !r.has(step) || r.Step(step).Status != Running || int(r.Step(step).Attempt) != attempt {
		return rec, false
	}
	return Record{Kind: Progress, Run: id, Step: step, Attempt: attempt, At: now, Data: progress}, true
}

// Park decides that a step waits until its handler is registered.
func (c Commands) Park(r *Run, step int, now int64) Record {
	return Record{Kind: Parked, Run: r.ID, Step: step, At: now, Text: r.StepDef(step).Handler}
}

// Unpark decides that a parked step continues, because its handler is registered now.
func (c Commands) Unpark(r *Run, step int, now int64) Record {
	return Record{Kind: Unparked, Run: r.ID, Step: step, At: now}
}

// Succeeded reports whether the attempt succeeded.
func (r *Result) Succeeded() bool {
	return !r.Failed && !r.Release && !r.Limited && r.Snooze == 0 && r.Until == 0
}
