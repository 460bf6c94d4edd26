package machine

import (
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// The records of some kinds have more content than a record has fields for, so that a field means
// something else than its name says:
//
//	Opened      Attempt is the epoch of the owner
//	Cron        Text is the name of the schedule, and Data is nil if it is deleted
//	Halted      Text is the name of the workflow, and Data who pauses it; count is 0 if it is resumed
//	Omitted     Attempt is the number of the records that it replaces
//	Parked      Attempt is above 0 if the function of a flow did not call the same operations as before
//	Failed      outputs has the code of the error; for Data see setFailure
//	Retry       count is 1 if it keeps the children of the operations that it calls again
//	Called      outputs has the question or the child, other is the id of the child, count is 1 if the
//	            operation has an undo, and Attempt is 1 if its first attempt begins
//	Suspended   count is how many operations must end before the function is called again
//	Signaled    count is 1 if the run has kept the signal until now; for Text see signaledRecord
//	ChildEnded  other is the child, count how often its operations were undone; for Data see OpOutcome
//	Undoing     count is the outcome of the run, outputs has the code of the error, and Data the operations
//	            that a retry calls again: see EncodeRedo
//	Undone      Data has the operations that a retry calls again
//	Replaced, Continued  other is the next run
//	Adopted     other and count are the run and the number of the operation that waits for this run
//
// The functions here make and read the records for which that takes more than a field.

// Open returns the record of an owner with this epoch that takes over the shard. boot is the id of the
// boot of its machine.
func Open(boot string, epoch uint64, now int64) Record {
	return Record{Kind: Opened, At: now, Text: boot, Attempt: int(epoch)}
}

// Jump returns the record of a change of the wall clock.
func Jump(by time.Duration, now int64) Record { return Record{Kind: Jumped, At: now, Delay: by} }

// SetSchedule returns the record that stores a schedule.
func SetSchedule(s Schedule, now int64) Record {
	return Record{Kind: Cron, At: now, Text: s.Name, Due: s.Due, Data: s.Data}
}

// DropSchedule returns the record that deletes a schedule.
func DropSchedule(name string, now int64) Record { return Record{Kind: Cron, At: now, Text: name} }

// purge says what a record of kind Purged deletes.
type purge struct {
	ended int64  // runs that finished before are deleted
	dead  int64  // runs that died before are deleted, except those in keep
	keep  []byte // their ids
}

// maxKept is the number of dead runs that one record of kind Purged can list as kept.
const maxKept = 20_000

// add adds a dead run that is kept; false if there is no room for it.
func (p *purge) add(id ID) bool {
	if len(p.keep) >= maxKept*len(id) {
		return false
	}
	p.keep = append(p.keep, id[:]...)
	return true
}

// kept returns the dead runs that are kept.
func (p *purge) kept() map[ID]bool {
	keep := map[ID]bool{}
	for data := p.keep; len(data) >= len(ID{}); data = data[len(ID{}):] {
		keep[ID(data[:len(ID{})])] = true
	}
	return keep
}

// Omitted returns how many records of the history a record of kind Omitted replaces.
func (r *Record) Omitted() int { return r.Attempt }

// startRecord returns the record of the start of a run with this many steps. In its Text a zero byte
// separates source and key. One more element may follow the outputs of the steps: the first run of
// the chain of repetitions if the run repeats another one, else the trace context. Older versions
// ignore this element. The next ones have the signals of the run that this one continues, and the
// parent. startedRun reads the record.
func startRecord(s *Start, steps int, now int64) Record {
	source, _, _ := strings.Cut(s.Source, "\x00")
	rec := Record{Kind: Started, Run: s.ID, At: now, Hash: s.Hash, Data: s.Input, Text: source + "\x00" + s.Key, other: s.Previous, outputs: s.Outputs}
	chain := s.Trace
	if !s.Origin.IsZero() {
		chain = encodeOrigin(s.Origin, s.OriginKey, s.Undos)
	}
	hasParent := !s.Parent.Run.IsZero()
	if chain == "" && s.Inbox == nil && !hasParent {
		return rec
	}
	rec.outputs = make([][]byte, steps+1)
	copy(rec.outputs[:steps], s.Outputs)
	rec.outputs[steps] = []byte(chain)
	if s.Inbox != nil || hasParent {
		rec.outputs = append(rec.outputs, s.Inbox)
	}
	if hasParent {
		rec.outputs = append(rec.outputs, s.Parent.encode())
	}
	return rec
}

// encodeOrigin returns the origin as it is stored in the record of a start and in the first
// record of the history. undos is how often the operations of the chain were undone.
func encodeOrigin(id ID, key string, undos int) string {
	name := id.String()
	if undos > 0 {
		name += "~" + strconv.Itoa(undos)
	}
	return name + "\x00" + key
}

func decodeOrigin(text string) (id ID, key string, undos int, ok bool) {
	name, key, ok := strings.Cut(text, "\x00")
	if !ok {
		return ID{}, "", 0, false
	}
	name, count, _ := strings.Cut(name, "~")
	undos, _ = strconv.Atoi(count) // 0 without a count
	id, err := ParseID(name)
	return id, key, undos, err == nil
}

// shortRecord returns the record as the history of its run has it, which has this many steps.
func shortRecord(r *Record, steps int) Record {
	short := *r
	short.Run, short.Data, short.outputs, short.Hash = ID{}, nil, nil, Hash{}
	switch {
	case r.Kind == Called && isQuestion(r.Text):
		short.outputs = r.outputs // the question
	case r.Kind == Failed || r.Kind == Undoing:
		short.outputs = r.outputs // the code
	case r.Kind == Started:
		short.Text = "" // fields of the run have the source and the key
		if len(r.outputs) > steps {
			short.Text = string(r.outputs[steps])
		}
	}
	return short
}

// Isolate notes in a record of kind Begun for how long the attempt keeps others from beginning.
func (r *Record) Isolate(d time.Duration) { r.Delay = d }

// Isolation returns for how long an attempt keeps others from beginning; 0 if it does not.
func (r *Record) Isolation() time.Duration { return r.Delay }

// setCode sets the code of the error of a record of kind Failed or Undoing.
func setCode(r *Record, code string) {
	if code != "" {
		r.outputs = [][]byte{[]byte(code)}
	}
}

// codeOf returns the code of the error of a record of kind Failed or Undoing; ok is false if it has
// none.
func codeOf(r *Record) (code string, ok bool) {
	if len(r.outputs) == 0 {
		return "", false
	}
	return string(r.outputs[0]), true
}

// Begins reports whether the first attempt of an operation begins with its call.
func (r *Record) Begins() bool { return r.Attempt > 0 }

// splitCalled returns the call of an operation that begins its first attempt as two records.
func splitCalled(r *Record) (called, begun Record) {
	called = *r
	called.Attempt, called.Deadline = 0, 0
	return called, Record{Kind: Begun, Step: r.Step, At: r.At, Attempt: r.Attempt, Deadline: r.Deadline}
}

// Question returns the question of an operation that is called; nil if it asks none.
func (r *Record) Question() []byte {
	if !isQuestion(r.Text) {
		return nil
	}
	return partOf(r.outputs, 0)
}

// Child returns the child of the operation in a record of kind Called or ChildEnded; zero if it has
// none.
func (r *Record) Child() ID { return r.other }

// signaledRecord returns the record of a signal for an operation; 0 if none waits for it.
func signaledRecord(run ID, number int, s *Signal, now int64) Record {
	return Record{Kind: Signaled, Run: run, Step: number, At: now, Text: s.Name + "\x00" + s.ID + "\x00" + s.By, Data: s.Data}
}

// Signal returns the name, the id and the sender of a record of kind Signaled.
func (r *Record) Signal() (name, id, by string) {
	name, rest, _ := strings.Cut(r.Text, "\x00")
	id, by, _ = strings.Cut(rest, "\x00")
	return name, id, by
}

// childRecord returns the record of the end of the child of an operation. It has the output of the
// child or the code of its error.
func childRecord(e *ChildEnd, now int64) Record {
	rec := Record{Kind: ChildEnded, Run: e.Parent.Run, Step: e.Parent.Number, At: now, other: e.Child, Reason: e.Reason, Text: e.Text, Data: e.Output, count: e.Undos}
	if e.Reason != 0 {
		rec.Data = []byte(e.Code)
	}
	return rec
}

// canceledOpRecord says that an operation ends because its run undoes its operations. It is not stored.
func canceledOpRecord(number int, child ID, at int64) Record {
	return Record{Step: number, At: at, other: child, Reason: retry.StopCanceled, Text: "the run undoes its operations", Data: []byte(canceledOp)}
}

// OpOutcome returns the output of the operation that the record ends, or the code and the text of its
// failure.
func (r *Record) OpOutcome() (output []byte, code, text string) {
	if r.Reason != 0 {
		return nil, string(r.Data), r.Text
	}
	return r.Data, "", ""
}

// undoingRecord returns the record that begins to undo the operations of the run. After that the run
// ends with the outcome.
func undoingRecord(run ID, o Outcome, why retry.Reason, text string, now int64) Record {
	return Record{Kind: Undoing, Run: run, At: now, count: int(o), Reason: why, Text: text}
}

// nextRecord returns a record of kind Replaced or Continued.
func nextRecord(kind Kind, run, next ID, now int64) Record {
	return Record{Kind: kind, Run: run, At: now, other: next}
}

// Schedule starts runs of a workflow at times of the wall clock.
type Schedule struct {
	Name string
	Due  int64  // time of the next start
	Data []byte // the rest of the schedule, which this package does not decode
}

// Pause describes the pause of a workflow: no attempt of its runs begins, except of those that are
// undoing.
type Pause struct {
	At int64
	By string
}

// canceledOp is the code of operations that have not ended when the run begins to undo.
const canceledOp = "canceled"

// parentEnded is the code of an operation whose child did not succeed after the end of the run. A
// retry of the run calls it again.
const parentEnded = "parent-ended"
