package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// The reasons for which a command is rejected.
var (
	ErrUnknown  = errors.New("no such run")
	ErrState    = errors.New("not possible now")
	ErrConflict = errors.New("key is taken")
)

// Commands decides about commands of users and about the ends of attempts. A decision returns the
// record that [Machine.Apply] applies, or why the command is rejected. It changes nothing,
// except that it reads cold runs back into memory.
type Commands struct {
	*state
}

// Start is a request to start a run.
type Start struct {
	ID      ID
	Hash    Hash
	Key     string
	Source  string // who starts it
	Input   []byte
	At      int64         // when to begin; 0 means now
	Timeout time.Duration // instead of the definition's; 0 means that one
	Outputs [][]byte      // of steps that need not run again

	// Of a run that repeats another.
	Previous  ID     // the run that it repeats
	Origin    ID     // the first run of the chain
	OriginKey string // its key
}

// Start decides about a start. A key that is known is not an error if it was used
// for the same workflow: the run that has it is returned.
func (c Commands) Start(req *Start, now int64) (rec Record, existing ID, err error) {
	if !c.stored(req.Hash) {
		return rec, ID{}, errors.New("definition is not stored")
	}
	d := c.defs[req.Hash]
	if req.Key != "" {
		if k, taken := c.keys[req.Key]; taken {
			if k.of != d.workflow {
				return rec, ID{}, fmt.Errorf("%w: %q by run %s of workflow %q", ErrConflict, req.Key, k.id, k.of.Name)
			}
			return rec, k.id, nil
		}
	}
	if len(req.Outputs) >= len(d.Steps) && !slices.ContainsFunc(req.Outputs[:len(d.Steps)], func(out []byte) bool { return out == nil }) {
		return rec, ID{}, fmt.Errorf("%w: all steps have their outputs, and nothing is left to run", ErrState)
	}
	source, _, _ := strings.Cut(req.Source, "\x00") // which ends it in the record
	rec = Record{
		Kind: Started, Run: req.ID, At: now, Hash: req.Hash, Data: req.Input, Other: req.Previous, Outputs: req.outputs(len(d.Steps)),
		Text: source + "\x00" + req.Key,
	}
	begin := now
	if req.At > now {
		rec.Due, begin = req.At, req.At
	}
	if timeout := cmp.Or(req.Timeout, d.Timeout); timeout > 0 {
		rec.Deadline = later(begin, timeout)
	}
	return rec, ID{}, nil
}

// outputs returns the outputs as the record has them. The origin of the chain comes
// after those of the steps, where a version that does not know of it ignores it.
func (s *Start) outputs(steps int) [][]byte {
	if s.Origin.IsZero() {
		return s.Outputs
	}
	list := make([][]byte, steps+1)
	copy(list[:steps], s.Outputs)
	list[steps] = []byte(encodeOrigin(s.Origin, s.OriginKey))
	return list
}

// later returns the time d after t, at most the largest one there is.
func later(t int64, d time.Duration) int64 {
	if s := t + int64(d); s >= t {
		return s
	}
	return 1<<63 - 1
}

// Cancel decides about a cancellation. A dead run may be canceled too: it will not be
// put back to work.
func (c Commands) Cancel(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err != nil {
		return Record{}, err
	}
	if r.Outcome == Succeeded || r.Outcome == Canceled || r.Finished() {
		return Record{}, fmt.Errorf("%w: run %s has %s", ErrState, id, r.State())
	}
	return Record{Kind: Cancel, Run: id, At: now, Text: by, Ends: Canceled}, nil
}

// Retry decides to put a dead run back to work.
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
	}
	rec := Record{Kind: Retry, Run: id, At: now, Text: by}
	if limit := timeout(r); limit > 0 {
		rec.Deadline = later(now, limit)
	}
	return rec, nil
}

// timeout returns the time that the run was given when it was started.
func timeout(r *Run) time.Duration {
	for rec := range r.Records() {
		if rec.Kind == Started && rec.Deadline != 0 {
			return time.Duration(rec.Deadline - max(rec.Due, rec.At))
		}
		break
	}
	return 0
}

// Wake decides to end the waits of a run now. There is a record for each.
func (c Commands) Wake(id ID, by string, now int64) (recs []Record, err error) {
	r, err := c.find(id)
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
func (c Commands) Hold(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err != nil {
		return Record{}, err
	}
	if r.Outcome != Undecided || r.Held {
		return Record{}, fmt.Errorf("%w: run %s is %s", ErrState, id, r.State())
	}
	return Record{Kind: Held, Run: id, At: now, Text: by}, nil
}

// Free decides that a paused run goes on.
func (c Commands) Free(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err != nil {
		return Record{}, err
	}
	if !r.Held {
		return Record{}, fmt.Errorf("%w: run %s is %s, and not paused", ErrState, id, r.State())
	}
	return Record{Kind: Freed, Run: id, At: now, Text: by}, nil
}

// Postpone decides that a run waits until a time of the calendar: its waits are
// moved there, and attempts that run are canceled and made again then. There is
// a record for each.
func (c Commands) Postpone(id ID, until int64, by string, now int64) (recs []Record, err error) {
	r, err := c.find(id)
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

// Forgive decides to reset what a run has spent: attempts, windows, lost attempts.
func (c Commands) Forgive(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err != nil {
		return Record{}, err
	}
	if r.Outcome != Undecided {
		return Record{}, fmt.Errorf("%w: run %s is %s; retry it", ErrState, id, r.State())
	}
	return Record{Kind: Forgiven, Run: id, At: now, Text: by}, nil
}

// Replace decides that another run does the work of a dead one.
func (c Commands) Replace(id, by ID, now int64) (Record, error) {
	r, err := c.find(id)
	if err != nil {
		return Record{}, err
	}
	if !r.Closed() || r.Outcome != Dead || !r.ReplacedBy().IsZero() {
		return Record{}, fmt.Errorf("%w: run %s is %s, and only a dead one can be replaced", ErrState, id, r.State())
	}
	return Record{Kind: Replaced, Run: id, At: now, Other: by}, nil
}

func (c Commands) find(id ID) (*Run, error) {
	if r, ok := c.runs[id]; ok {
		return r, c.warm(r)
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
}

// Define decides to store a definition, unless it is stored already.
func (c Commands) Define(d *Definition, now int64) (rec Record, ok bool) {
	if c.stored(d.hash) {
		return rec, false
	}
	return Record{Kind: Defined, At: now, Data: d.text}, true
}

// maxKept is how many dead runs one record can keep from being forgotten.
const maxKept = 20_000

// Purge decides to forget the runs that ended before the one time, and those that died
// before the other, if there are any. The dead runs in keep are not forgotten.
func (c Commands) Purge(ended, dead int64, keep map[ID]bool) (rec Record, ok bool) {
	rec = Record{Kind: Purged, At: ended, Due: dead}
	first, expires := c.firstExpiry()
	ok = expires && first < ended
	for _, r := range c.all {
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
