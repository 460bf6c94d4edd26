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

// The reasons for which a command is refused.
var (
	ErrUnknown  = errors.New("no such run")
	ErrState    = errors.New("not possible now")
	ErrConflict = errors.New("key is taken")
)

// Start is the wish to start a run.
type Start struct {
	ID      ID
	Hash    Hash
	Key     string
	Source  string // who asks
	Input   []byte
	At      int64         // when to begin; 0 means now
	Timeout time.Duration // instead of the definition's; 0 means that one
	Outputs [][]byte      // of steps that need not run again

	// Of a run that repeats another.
	Previous  ID     // the run that it repeats
	Origin    ID     // the first run of the chain
	OriginKey string // its key
}

// Start decides about a start. A key that is known is no error if it was used
// for the same workflow: the run that has it is returned.
func (m *Machine) Start(c *Start, now int64) (rec Record, existing ID, err error) {
	d := m.defs[c.Hash]
	if _, stored := m.used[c.Hash]; !stored {
		return rec, ID{}, errors.New("definition is not stored")
	}
	if c.Key != "" {
		if k, taken := m.keys[c.Key]; taken {
			if k.of != d.workflow {
				return rec, ID{}, fmt.Errorf("%w: %q by run %s of workflow %q", ErrConflict, c.Key, k.id, k.of.Name)
			}
			return rec, k.id, nil
		}
	}
	if len(c.Outputs) >= len(d.Steps) && !slices.ContainsFunc(c.Outputs[:len(d.Steps)], func(out []byte) bool { return out == nil }) {
		return rec, ID{}, fmt.Errorf("%w: all steps have their outputs, and nothing is left to run", ErrState)
	}
	source, _, _ := strings.Cut(c.Source, "\x00") // which ends it in the record
	rec = Record{
		Kind: Started, Run: c.ID, At: now, Hash: c.Hash, Data: c.Input, Other: c.Previous, Outputs: c.outputs(len(d.Steps)),
		Text: source + "\x00" + c.Key,
	}
	begin := now
	if c.At > now {
		rec.Due, begin = c.At, c.At
	}
	if timeout := cmp.Or(c.Timeout, d.Timeout); timeout > 0 {
		rec.Deadline = later(begin, timeout)
	}
	return rec, ID{}, nil
}

// outputs returns the outputs as the record has them. The origin of the chain comes
// after those of the steps, where a version that does not know of it ignores it.
func (c *Start) outputs(steps int) [][]byte {
	if c.Origin.IsZero() {
		return c.Outputs
	}
	list := make([][]byte, steps+1)
	copy(list[:steps], c.Outputs)
	list[steps] = []byte(encodeOrigin(c.Origin, c.OriginKey))
	return list
}

// later returns the time d after t, at most the largest one there is.
func later(t int64, d time.Duration) int64 {
	if s := t + int64(d); s >= t {
		return s
	}
	return 1<<63 - 1
}

// Attempt decides to begin an attempt of a step that stands in its queue. Its
// deadline is the first of those of the attempt, the step and the run.
func (m *Machine) Attempt(r *Run, step int, now int64) Record {
	s, p := &r.Steps[step], &r.Def.Steps[step].Policy
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
		least(later(cmp.Or(s.First, now), p.TotalTimeout))
	}
	return Record{Kind: Begun, Run: r.ID, Step: step, At: now, Attempt: int(s.Attempt) + 1, Deadline: end}
}

// Result is how an attempt ended.
type Result struct {
	Run     ID
	Step    int
	Attempt int
	Output  []byte // of one that succeeded
	Error   string // of one that did not
	Failed  bool
	Outcome retry.Outcome // how it failed
	Snooze  time.Duration // not a failure: call again then
	Until   int64         // the same by the calendar, if it is not 0
	Limited bool          // it was told to come back then
	Now     bool          // with Limited: it has something else to do until then, and is called again at once
	Release bool          // not a failure: the process ends, or the run is held
	Memo    []byte        // for the next attempt
}

// Finish decides what follows the end of an attempt. There is nothing to record
// of an attempt that is not running. u is a uniform random number.
func (m *Machine) Finish(c *Result, now int64, u uint64) (rec Record, ok bool) {
	r, known := m.runs[c.Run]
	if !known || c.Step >= len(r.Steps) {
		return rec, false
	}
	s := &r.Steps[c.Step]
	if s.Status != Running || int(s.Attempt) != c.Attempt {
		return rec, false
	}
	rec = Record{Run: c.Run, Step: c.Step, At: now, Attempt: c.Attempt}
	switch {
	case r.Outcome != Undecided:
		rec.Kind, rec.Text = Late, late(c)
	case c.Limited:
		m.limit(&rec, r, c, u)
	case c.Snooze > 0 || c.Until != 0:
		rec.Kind, rec.By, rec.Text, rec.Data = Snoozed, retry.ByHandler, c.Error, c.Memo
		rec.Delay, rec.Due = c.Snooze, later(now, c.Snooze)
		if c.Until != 0 {
			rec.Delay, rec.Due, rec.Clock = time.Duration(max(c.Until-now, 0)), c.Until, true
		}
	case c.Release:
		rec.Kind, rec.Text, rec.Data = Released, c.Error, c.Memo
	case c.Failed:
		m.fail(&rec, r, c, u)
	default:
		rec.Kind, rec.Data = Done, c.Output
		if rec.Data == nil {
			rec.Data = []byte("null")
		}
	}
	rec.Ends = r.ends(&rec)
	return rec, true
}

func late(c *Result) string {
	if c.Failed || c.Release || c.Limited || c.Snooze > 0 || c.Until != 0 {
		return c.Error
	}
	return "succeeded too late; the result is dropped"
}

// fail asks the policy.
func (m *Machine) fail(rec *Record, r *Run, c *Result, u uint64) {
	s := &r.Steps[c.Step]
	state := retry.State{Attempt: int(s.Spent) + 1, Prev: s.Prev, Elapsed: time.Duration(rec.At - s.First), Left: r.left(rec.At)}
	if r.healthy(c.Step, rec.At) {
		state.Attempt, state.Prev, state.Elapsed = 1, 0, time.Duration(rec.At-s.At)
	}
	d := retry.Decide(r.Def.Steps[c.Step].Policy, state, c.Outcome, retry.Gates{}, u)
	rec.Kind, rec.Text, rec.Data, rec.Prev = Failed, c.Error, c.Memo, d.Prev
	if rec.Reason = d.Stop; d.Stop == 0 {
		rec.Delay, rec.By, rec.Due = d.Wait, d.By, later(rec.At, d.Wait)
	}
}

// limit decides about an attempt that was told when to come back. That spends
// one of the windows, and the policy has a say about how long is too long.
func (m *Machine) limit(rec *Record, r *Run, c *Result, u uint64) {
	def := &r.Def.Steps[c.Step]
	p := def.Policy
	p.Attempts, p.TotalTimeout = retry.Unlimited, 0
	after := c.Snooze
	if c.Until != 0 {
		after = time.Duration(c.Until - rec.At)
	}
	d := retry.Decide(p, retry.State{Attempt: 1, Left: r.left(rec.At)}, retry.Outcome{After: max(after, 1)}, retry.Gates{}, u)
	rec.Kind, rec.Text, rec.Data = Failed, c.Error, c.Memo
	switch {
	case int(r.Steps[c.Step].Windows) >= cmp.Or(def.Windows, DefaultWindows):
		rec.Reason = retry.StopWindows
	case d.Stop == retry.StopServerWait:
		rec.Reason = d.Stop
		rec.Text = fmt.Sprintf("%s; that is %v ahead, and server-wait grants %v", c.Error, after.Round(time.Second), cmp.Or(p.ServerWait, retry.DefaultServerWait))
	case d.Stop != 0:
		rec.Reason = d.Stop
	default:
		rec.Kind, rec.Delay, rec.By, rec.Due, rec.Clock = Limited, d.Wait, d.By, later(rec.At, d.Wait), c.Until != 0
		if c.Now {
			rec.Delay, rec.Due, rec.Clock = 0, rec.At, false
		}
	}
}

// left returns how much time the run has, as [retry.State] wants it.
func (r *Run) left(now int64) time.Duration {
	if r.Deadline == 0 {
		return 0
	}
	if left := time.Duration(r.Deadline - now); left != 0 {
		return left
	}
	return -1
}

// healthy reports whether the attempt that ends then has lasted so long that what
// failed before it does not count any more.
func (r *Run) healthy(step int, at int64) bool {
	after := r.Def.Steps[step].Policy.ResetAfter
	return after > 0 && at-r.Steps[step].At >= int64(after)
}

// ends says which outcome the end of an attempt gives the run, if any.
func (r *Run) ends(rec *Record) Outcome {
	switch {
	case r.Outcome != Undecided || r.running > 1:
		return Undecided
	case rec.Kind == Done && int(r.done)+1 == len(r.Steps):
		return Succeeded
	case r.Failing || rec.Reason != 0:
		return Dead
	}
	return Undecided
}

// Lose decides what follows an attempt in which the process ended: another one, after a delay.
// There is none if there have been more than MaxLost, and the last one ran alone: without that,
// another attempt may be what ended the process. A MaxLost of 0 means that a lost attempt is
// never repeated, whatever ended the process.
func (m *Machine) Lose(r *Run, step int, now int64, alone bool) Record {
	s, most := &r.Steps[step], r.Def.Steps[step].MaxLost
	lost := int(s.Lost) + 1
	rec := Record{Kind: Lost, Run: r.ID, Step: step, At: now, Attempt: int(s.Attempt)}
	switch {
	case r.Outcome != Undecided:
		rec.Due = now
	case most == 0 || lost > most && alone:
		rec.Reason = retry.StopLost
	default:
		rec.By, rec.Delay, rec.Due = retry.ByEngine, lostDelay(lost), later(now, lostDelay(lost))
	}
	rec.Text = lostText(lost, alone)
	rec.Ends = r.ends(&rec)
	return rec
}

// lostText says what happened to so many attempts in a row.
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

// Orphans calls yield with every attempt that is running by the state.
func (m *Machine) Orphans(yield func(*Run, int)) {
	for _, r := range m.all {
		if r.running == 0 {
			continue
		}
		for i := range r.Steps {
			if r.Steps[i].Status == Running {
				yield(r, i)
			}
		}
	}
}

// Expire decides that the run's time is over. It says so if the run was waiting for a
// free place then. opened is when this process began to work on the run: before
// that the run was in no queue.
func (m *Machine) Expire(r *Run, opened, now int64) Record {
	_ = m.warm(r) // Apply returns the error
	rec := Record{Kind: Expired, Run: r.ID, At: now, Ends: Dead}
	since, queued := r.queuedSince()
	switch took := r.timeout(); {
	case !queued || took == 0:
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

// queuedSince returns since when a step of the run has been in its queue, if one is
// and no other is running.
func (r *Run) queuedSince() (at int64, queued bool) {
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

// Cancel decides about a cancellation. A dead run may be canceled too, which
// says that nobody will put it back to work.
func (m *Machine) Cancel(id ID, by string, now int64) (Record, error) {
	r, err := m.find(id)
	if err != nil {
		return Record{}, err
	}
	if r.Outcome == Succeeded || r.Outcome == Canceled || r.Finished() {
		return Record{}, fmt.Errorf("%w: run %s has %s", ErrState, id, r.State())
	}
	return Record{Kind: Cancel, Run: id, At: now, Text: by, Ends: Canceled}, nil
}

// Retry decides to put a dead run back to work.
func (m *Machine) Retry(id ID, by string, now int64) (Record, error) {
	r, err := m.find(id)
	switch {
	case err != nil:
		return Record{}, err
	case r.Outcome != Dead:
		return Record{}, fmt.Errorf("%w: run %s is %s, and only a dead one can be retried", ErrState, id, r.State())
	case !r.ReplacedBy().IsZero():
		return Record{}, fmt.Errorf("%w: run %s was replaced by %s", ErrState, id, r.ReplacedBy())
	case !r.Closed():
		return Record{}, fmt.Errorf("%w: an attempt of run %s is still being stopped", ErrState, id)
	}
	rec := Record{Kind: Retry, Run: id, At: now, Text: by}
	if timeout := r.timeout(); timeout > 0 {
		rec.Deadline = later(now, timeout)
	}
	return rec, nil
}

// timeout returns the time that the run was given when it was started.
func (r *Run) timeout() time.Duration {
	for rec := range r.Records() {
		if rec.Kind == Started && rec.Deadline != 0 {
			return time.Duration(rec.Deadline - max(rec.Due, rec.At))
		}
		break
	}
	return 0
}

// Wake decides to end the waits of a run now. There is a record for each.
func (m *Machine) Wake(id ID, by string, now int64) (recs []Record, err error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	for i := range r.Steps {
		if s := &r.Steps[i]; r.Outcome == Undecided && !r.Failing && s.Status == Waiting && s.At > now {
			recs = append(recs, Record{Kind: Woken, Run: id, Step: i, At: now, Text: by, By: retry.ByHuman})
		}
	}
	if len(recs) == 0 {
		return nil, fmt.Errorf("%w: run %s is %s and waits for nothing", ErrState, id, r.State())
	}
	return recs, nil
}

// Hold decides to pause a run.
func (m *Machine) Hold(id ID, by string, now int64) (Record, error) {
	r, err := m.find(id)
	if err != nil {
		return Record{}, err
	}
	if r.Outcome != Undecided || r.Held {
		return Record{}, fmt.Errorf("%w: run %s is %s", ErrState, id, r.State())
	}
	return Record{Kind: Held, Run: id, At: now, Text: by}, nil
}

// Free decides that a paused run goes on.
func (m *Machine) Free(id ID, by string, now int64) (Record, error) {
	r, err := m.find(id)
	if err != nil {
		return Record{}, err
	}
	if !r.Held {
		return Record{}, fmt.Errorf("%w: run %s is %s, and not paused", ErrState, id, r.State())
	}
	return Record{Kind: Freed, Run: id, At: now, Text: by}, nil
}

// Postpone decides that a run waits until a time of the calendar: its waits are
// moved there, and attempts that run are told to end and made again then. There is
// a record for each.
func (m *Machine) Postpone(id ID, until int64, by string, now int64) (recs []Record, err error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		if r.begun() && r.Outcome == Undecided && !r.Failing && (s.Status == Running || s.Status == Waiting && s.At != until) {
			recs = append(recs, Record{
				Kind: Postponed, Run: id, Step: i, At: now, Due: until, Delay: time.Duration(until - now), Text: by, By: retry.ByHuman, Clock: true,
			})
		}
	}
	if len(recs) == 0 {
		return nil, fmt.Errorf("%w: run %s is %s, and nothing of it can wait until then", ErrState, id, r.State())
	}
	return recs, nil
}

// Forgive decides to forget what a run has spent: attempts, windows, lost ones.
func (m *Machine) Forgive(id ID, by string, now int64) (Record, error) {
	r, err := m.find(id)
	if err != nil {
		return Record{}, err
	}
	if r.Outcome != Undecided {
		return Record{}, fmt.Errorf("%w: run %s is %s; retry it", ErrState, id, r.State())
	}
	return Record{Kind: Forgiven, Run: id, At: now, Text: by}, nil
}

// Report decides about progress of an attempt.
func (m *Machine) Report(id ID, step, attempt int, progress json.RawMessage, now int64) (rec Record, ok bool) {
	r, known := m.runs[id]
	if !known || step >= len(r.Steps) || r.Steps[step].Status != Running || int(r.Steps[step].Attempt) != attempt {
		return rec, false
	}
	return Record{Kind: Progress, Run: id, Step: step, Attempt: attempt, At: now, Data: progress}, true
}

// Park decides that nobody knows the step's handler.
func (m *Machine) Park(r *Run, step int, now int64) Record {
	return Record{Kind: Parked, Run: r.ID, Step: step, At: now, Text: r.Def.Steps[step].Handler}
}

// Unpark decides that the step's handler is known now.
func (m *Machine) Unpark(r *Run, step int, now int64) Record {
	return Record{Kind: Unparked, Run: r.ID, Step: step, At: now}
}

// Replace decides that another run does the work of a dead one.
func (m *Machine) Replace(id, by ID, now int64) (Record, error) {
	r, err := m.find(id)
	if err != nil {
		return Record{}, err
	}
	if !r.Closed() || r.Outcome != Dead || !r.ReplacedBy().IsZero() {
		return Record{}, fmt.Errorf("%w: run %s is %s, and only a dead one can be replaced", ErrState, id, r.State())
	}
	return Record{Kind: Replaced, Run: id, At: now, Other: by}, nil
}

func (m *Machine) find(id ID) (*Run, error) {
	if r, ok := m.runs[id]; ok {
		return r, m.warm(r)
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
}

// Define decides to store a definition, unless it is stored already.
func (m *Machine) Define(d *Definition, now int64) (rec Record, ok bool) {
	if _, known := m.used[d.hash]; known {
		return rec, false
	}
	return Record{Kind: Defined, At: now, Data: d.text}, true
}

// maxKept is how many dead runs one record can keep from being forgotten.
const maxKept = 20_000

// Purge decides to forget what ended before the one time, and died before the
// other, if there is any. The dead runs in keep are not forgotten.
func (m *Machine) Purge(ended, dead int64, keep map[ID]bool) (rec Record, ok bool) {
	rec = Record{Kind: Purged, At: ended, Due: dead}
	ok = len(m.ended) > 0 && m.ended[0].at < ended
	for _, r := range m.all {
		switch {
		case !r.Closed() || r.Finished() || r.Ended >= dead:
		case keep[r.ID] && len(rec.Data) < maxKept*len(ID{}):
			rec.Data = append(rec.Data, r.ID[:]...)
		default:
			ok = true
		}
	}
	return rec, ok
}
