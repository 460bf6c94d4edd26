package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
	rec = startRecord(req, len(d.Steps), now)
	rec.format = d.format()
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

// Cancel decides to cancel a run. A dead run may be canceled too: it can't be retried then. A run
// with operations that can be undone undoes them first.
func (c Commands) Cancel(id ID, by string, now int64) (Record, error) {
	r, err := c.Read(id)
	switch {
	case err != nil:
	case !isCancelable(r):
		err = fmt.Errorf("%w: run %s is %s, and can't be canceled", ErrState, id, r.State())
	case mustUndo(r):
		return undoingRecord(r.ID, Canceled, retry.StopCanceled, by, now), nil
	case r.flow.IsUndoing() && r.Outcome == Undecided:
		err = fmt.Errorf("%w: run %s undoes its operations; wait for its end, or abandon it (tideover cancel --abandon)", ErrState, id)
	}
	return Record{Kind: Cancel, Run: id, At: now, Text: by, Ends: Canceled}, err
}

// isCancelable reports whether the run has not ended, or is dead and can be retried.
func isCancelable(r *Run) bool {
	return r.Outcome != Succeeded && r.Outcome != Canceled && !r.Finished()
}

// check returns an error with the state of the run if a command is not allowed for it. The error ends
// with the hint.
func (c Commands) check(id ID, hint string, isAllowed func(*Run) bool) error {
	r, err := c.Read(id)
	if err == nil && !isAllowed(r) {
		err = fmt.Errorf("%w: run %s is %s%s", ErrState, id, r.State(), hint)
	}
	return err
}

// Retry decides to continue a dead run.
func (c Commands) Retry(id ID, by string, now int64) (Record, error) {
	r, err := c.Read(id)
	switch {
	case err != nil:
		return Record{}, err
	case r.Outcome != Dead:
		return Record{}, fmt.Errorf("%w: run %s is %s, and only a dead one can be retried", ErrState, id, r.State())
	case !r.ReplacedBy().IsZero():
		return Record{}, fmt.Errorf("%w: run %s was replaced by %s", ErrState, id, r.ReplacedBy())
	case !r.Closed():
		return Record{}, fmt.Errorf("%w: an attempt of run %s is still being stopped", ErrState, id)
	case mustCancel(r):
		return Record{}, fmt.Errorf("%w: children of run %s are still being canceled", ErrState, id)
	}
	rec := Record{Kind: Retry, Run: id, At: now, Text: by}
	if r.flow.RetriesChildren() {
		rec.count, rec.format = 1, ChildFormat
	}
	if limit := timeout(r); limit > 0 && !r.flow.IsUndoing() {
		rec.Deadline = later(now, limit)
	}
	return rec, nil
}

// Wake decides to end the waits of a run now. It returns a record for each waiting step.
func (c Commands) Wake(id ID, by string, now int64) (recs []Record, err error) {
	r, err := c.Read(id)
	if err != nil {
		return nil, err
	}
	for n, s := range r.Live() {
		if r.Outcome == Undecided && !r.Failing && s.Status == Waiting && s.At > now && r.flow.isMovable(n) {
			recs = append(recs, Record{Kind: Woken, Run: id, Step: n, At: now, Text: by, By: retry.ByHuman})
		}
	}
	if len(recs) == 0 {
		return nil, fmt.Errorf("%w: run %s is %s, and no step of it waits%s", ErrState, id, r.State(), awaitedHint(r))
	}
	return recs, nil
}

// Hold decides to pause a run.
func (c Commands) Hold(id ID, by string, now int64) (Record, error) {
	err := c.check(id, "", func(r *Run) bool { return r.Outcome == Undecided && !r.Held })
	return Record{Kind: Held, Run: id, At: now, Text: by}, err
}

// Free decides to resume a paused run.
func (c Commands) Free(id ID, by string, now int64) (Record, error) {
	err := c.check(id, ", and not paused", func(r *Run) bool { return r.Held })
	return Record{Kind: Freed, Run: id, At: now, Text: by}, err
}

// Postpone decides that a run waits until a point in time by the wall clock. It moves the run's
// waits to that time, cancels its running attempts, and makes them again at that time. It returns
// a record for each step that is affected.
func (c Commands) Postpone(id ID, until int64, by string, now int64) (recs []Record, err error) {
	r, err := c.Read(id)
	if err != nil {
		return nil, err
	}
	for n, s := range r.Live() {
		if hasBegun(r) && r.Outcome == Undecided && !r.Failing && (s.Status == Running || s.Status == Waiting && s.At != until && r.flow.isMovable(n)) {
			recs = append(recs, Record{
				Kind: Postponed, Run: id, Step: n, At: now, Due: until, Delay: time.Duration(until - now), Text: by, By: retry.ByHuman, Clock: true,
			})
		}
	}
	if len(recs) == 0 {
		return nil, fmt.Errorf("%w: run %s is %s, and no step of it can be postponed%s", ErrState, id, r.State(), awaitedHint(r))
	}
	return recs, nil
}

// Forgive decides to reset three counters of each step of a run: the attempts that count for the
// retry policy, the attempts that returned Limited, and the lost attempts.
func (c Commands) Forgive(id ID, by string, now int64) (Record, error) {
	err := c.check(id, "; retry it", func(r *Run) bool { return r.Outcome == Undecided })
	return Record{Kind: Forgiven, Run: id, At: now, Text: by}, err
}

// Replace decides to mark the dead run id as replaced by the run by.
func (c Commands) Replace(id, by ID, now int64) (Record, error) {
	err := c.check(id, ", and only a dead one can be replaced", func(r *Run) bool {
		return r.Closed() && r.Outcome == Dead && r.ReplacedBy().IsZero()
	})
	return nextRecord(Replaced, id, by, now), err
}

// Read returns a run that is in memory, and reads it back if it is cold.
func (c Commands) Read(id ID) (*Run, error) {
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

// Purge decides to delete old runs: runs that finished before the time ended, and runs that died
// before the time dead. It keeps the dead runs in keep, but at most maxKept of them. ok is false
// if there is nothing to delete.
func (c Commands) Purge(ended, dead int64, keep map[ID]bool) (rec Record, ok bool) {
	p := purge{ended: ended, dead: dead}
	ok = len(c.ended) > 0 && c.ended[0].at < ended || c.hasUnused(min(ended, dead))
	for _, r := range c.all {
		switch {
		case !r.Closed() || r.Finished() || r.Ended >= dead || r.IsNeeded():
		case keep[r.ID] && p.add(r.ID):
		default:
			ok = true
		}
	}
	return Record{Kind: Purged, At: p.ended, Due: p.dead, Data: p.keep}, ok
}

// Signal decides to send a signal to a run. known is true if the run has got a signal with the
// same id before; then there is no record.
func (c Commands) Signal(s *Signal, now int64) (rec Record, known bool, err error) {
	r, err := c.Read(s.Run)
	if err != nil {
		return rec, false, err
	}
	if r.flow.HasSignal(s.ID) {
		return rec, true, nil
	}
	if err := accepts(r, s); err != nil {
		return rec, false, err
	}
	return signaledRecord(s.Run, waitsFor(r.flow, s), s, now), false, nil
}

// accepts returns an error if the run can't get the signal.
func accepts(r *Run, s *Signal) error {
	if r.flow == nil {
		return fmt.Errorf("%w: workflow %q has no function that could wait for the signal %s", ErrState, r.Def.Name, s.Name)
	}
	if r.Outcome != Undecided {
		return fmt.Errorf("%w: run %s is %s, and takes no signals", ErrState, r.ID, r.State())
	}
	got := valueOf(r.flow.inbox)
	added := signal{s.Name, s.Data}
	switch {
	case int(r.flow.size)+int(got.size)+len(s.Data) > MaxResults:
		return fmt.Errorf("%w: the results of run %s would have more than %d MiB", ErrSignals, r.ID, MaxResults>>20)
	case waitsFor(r.flow, s) > 0:
		return nil
	case len(got.signals) >= MaxSignals:
		return fmt.Errorf("%w: run %s has %d that it has not waited for, the most that it can have", ErrSignals, r.ID, MaxSignals)
	case got.size+added.size() > MaxSignalBytes:
		return fmt.Errorf("%w: those that run %s has not waited for would have more than %d KiB", ErrSignals, r.ID, MaxSignalBytes>>10)
	}
	return nil
}

// awaitedHint returns, as the end of an error, which signal the run waits for; "" if it waits for
// none.
func awaitedHint(r *Run) string {
	if r.flow == nil || r.Outcome != Undecided {
		return ""
	}
	for i := range r.flow.ops {
		if name, ok := awaited(r.flow.ops[i].name); ok {
			if isQuestion(r.flow.ops[i].name) {
				return fmt.Sprintf("; it waits for the answer to %s", OpName(name))
			}
			return fmt.Sprintf("; it waits for the signal %s", name)
		}
	}
	return ""
}

// waitsFor returns the number of the first operation that waits for the signal by its name, or else by
// a former one; 0 if there is none.
func waitsFor(f *Flow, s *Signal) int {
	for _, name := range append([]string{s.Name}, s.Former...) {
		for i := range f.ops {
			if awaits, ok := awaited(f.ops[i].name); ok && awaits == name {
				return int(f.ops[i].number)
			}
		}
	}
	return 0
}

// Undo decides that a dead run undoes its operations.
func (c Commands) Undo(id ID, by string, now int64) (rec Record, err error) {
	r, err := c.Read(id)
	if err != nil {
		return rec, err
	}
	switch {
	case r.flow == nil || r.flow.undoable == 0:
		err = fmt.Errorf("%w: run %s has no operation that can be undone", ErrState, id)
	case r.flow.undo != nil && r.flow.undo.done:
		err = fmt.Errorf("%w: the operations of run %s are undone already", ErrState, id)
	case r.flow.IsUndoing():
		err = fmt.Errorf("%w: run %s is %s; if it is dead, retry it", ErrState, id, r.State())
	case r.Outcome != Dead || !r.Closed() || !r.ReplacedBy().IsZero():
		err = fmt.Errorf("%w: run %s is %s, and only the operations of a dead one can be undone; cancel it", ErrState, id, r.State())
	}
	if err != nil {
		return rec, err
	}
	_, text, _ := Situation(r)
	return undoingRecord(r.ID, Dead, r.Reason, text+"; undone by "+by, now), nil
}

// Abandon decides to end a run at once, without undoing its operations.
func (c Commands) Abandon(id ID, by string, now int64) (Record, error) {
	err := c.check(id, ", and can't be abandoned", isCancelable)
	return Record{Kind: Cancel, Run: id, At: now, Text: by, Ends: Canceled}, err
}

// Halt decides to pause a workflow, or to resume it. ok is false if that changes nothing.
func (c Commands) Halt(workflow, by string, pause bool, now int64) (rec Record, ok bool) {
	if w := c.workflows[workflow]; pause == (w != nil && w.Pause != nil) {
		return rec, false
	}
	rec = Record{Kind: Halted, At: now, Text: workflow, Data: []byte(by)}
	if pause {
		rec.count = 1
	}
	return rec, true
}
