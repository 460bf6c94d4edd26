package machine

import (
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// The records of some kinds have more content than a record has fields for, so that a field means
// something else than its name says. The functions here make such records, and the methods read them.

// Open returns the record of an owner with this epoch that takes over the shard. boot is the id of the
// boot of its machine.
func Open(boot string, epoch uint64, now int64) Record {
	return Record{Kind: Opened, At: now, Text: boot, Attempt: int(epoch)}
}

func bootOf(r *Record) string { return r.Text }

// Jump returns the record of a change of the wall clock.
func Jump(by time.Duration, now int64) Record { return Record{Kind: Jumped, At: now, Delay: by} }

// SetSchedule returns the record that stores a schedule.
func SetSchedule(s Schedule, now int64) Record {
	return Record{Kind: Cron, At: now, Text: s.Name, Due: s.Due, Data: s.Data}
}

// DropSchedule returns the record that deletes a schedule.
func DropSchedule(name string, now int64) Record { return Record{Kind: Cron, At: now, Text: name} }

// cronSchedule returns the schedule of a record of kind Cron; its Data is nil if it is deleted.
func cronSchedule(r *Record) Schedule { return Schedule{Name: r.Text, Due: r.Due, Data: r.Data} }

// pauseRecord returns the record that pauses a workflow, or resumes it.
func pauseRecord(workflow, by string, pause bool, now int64) Record {
	rec := Record{Kind: Halted, At: now, Text: workflow, Data: []byte(by)}
	if pause {
		rec.count = 1
	}
	return rec
}

// pauseOf returns the workflow of a record of kind Halted, and its pause; nil if it is resumed.
func pauseOf(r *Record) (workflow string, p *Pause) {
	if r.count > 0 {
		p = &Pause{At: r.At, By: string(r.Data)}
	}
	return r.Text, p
}

// purge says what a record of kind Purged deletes.
type purge struct {
	ended int64  // runs that finished before are deleted
	dead  int64  // runs that died before are deleted, except those in keep
	keep  []byte // their ids
}

func (p *purge) record() Record { return Record{Kind: Purged, At: p.ended, Due: p.dead, Data: p.keep} }

func purgeOf(r *Record) purge { return purge{r.At, r.Due, r.Data} }

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

// omittedRecord returns the record that replaces this many records of a history.
func omittedRecord(records int, at int64) Record {
	return Record{Kind: Omitted, At: at, Attempt: records}
}

// Omitted returns how many records of the history a record of kind Omitted replaces.
func (r *Record) Omitted() int { return r.Attempt }

// startFields is what a record of kind Started has beside the input and the times.
type startFields struct {
	source, key string
	previous    ID       // the run that it repeats
	outputs     [][]byte // of the steps that do not run again, nil for the others
	inbox       []byte   // signals of the run that it continues; encoded
	parent      []byte   // encoded
}

// startRecord returns the record of the start of a run with this many steps. In its Text a zero byte
// separates source and key. One more element may follow the outputs of the steps: the first run of
// the chain of repetitions if the run repeats another one, else the trace context. Older versions
// ignore this element. The next ones have the signals of the run that this one continues, and the
// parent.
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

// startOf returns the fields of a record of kind Started, for a run with this many steps.
func startOf(r *Record, steps int) (s startFields) {
	s.source, s.key, _ = strings.Cut(r.Text, "\x00")
	s.previous = r.other
	s.outputs = r.outputs[:min(steps, len(r.outputs))]
	s.inbox, s.parent = partOf(r.outputs, steps+1), partOf(r.outputs, steps+2)
	return s
}

// Starter returns who started the run of a record of kind Started.
func (r *Record) Starter() string {
	source, _, _ := strings.Cut(r.Text, "\x00")
	return source
}

// chainText returns the chain of repetitions, see encodeOrigin, or the trace context of the starter. The
// record must be of a history.
func chainText(r *Record) string { return r.Text }

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
	case r.Kind == Called && strings.HasPrefix(r.Text, AskKind+":"):
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

// redoOf returns the operations that a retry of the run calls again, see EncodeRedo: of a function that
// failed, and of a run that undoes its operations.
func redoOf(r *Record) []byte { return r.Data }

// isMismatch reports whether a record of kind Parked says that the function of a flow did not call
// the same operations as before.
func isMismatch(r *Record) bool { return r.Attempt > 0 }

// keepChildren makes a retry keep the children of the operations that it calls again.
func keepChildren(r *Record) { r.count, r.format = 1, ChildFormat }

func keepsChildren(r *Record) bool { return r.count > 0 }

// setQuestion sets the question of an operation that is called.
func setQuestion(r *Record, text []byte) { r.outputs = [][]byte{text} }

// setChild sets the child of an operation that is called.
func setChild(r *Record, c *Child) {
	r.outputs, r.other = [][]byte{c.Encode()}, c.ID
	if !c.Former.ID.IsZero() {
		r.format = ChildFormat // an older version would wait for a run that does not exist
	}
}

// setUndoable notes that an operation that is called has an undo.
func setUndoable(r *Record) { r.count = 1 }

// beginCalled makes the first attempt of an operation begin with its call.
func beginCalled(r *Record, deadline int64) { r.Attempt, r.Deadline = 1, deadline }

// Begins reports whether the first attempt of an operation begins with its call.
func (r *Record) Begins() bool { return r.Attempt > 0 }

// splitCalled returns the call of an operation that begins its first attempt as two records.
func splitCalled(r *Record) (called, begun Record) {
	called = *r
	called.Attempt, called.Deadline = 0, 0
	return called, Record{Kind: Begun, Step: r.Step, At: r.At, Attempt: r.Attempt, Deadline: r.Deadline}
}

// undoableOf returns how many operations with an undo a record of kind Called adds.
func undoableOf(r *Record) int { return r.count }

// aboutOf returns the question or the child of an operation that is called; nil if it has none.
func aboutOf(r *Record) []byte {
	return partOf(r.outputs, 0)
}

// Question returns the question of an operation that is called; nil if it asks none.
func (r *Record) Question() []byte {
	if !strings.HasPrefix(r.Text, AskKind+":") {
		return nil
	}
	return aboutOf(r)
}

// Child returns the child of the operation in a record of kind Called or ChildEnded; zero if it has
// none.
func (r *Record) Child() ID { return r.other }

// suspendedRecord returns the record of the end of a call of the function, which is called again when
// this many operations have ended.
func suspendedRecord(run ID, call, awaited int, now int64) Record {
	return Record{Kind: Suspended, Run: run, At: now, Attempt: call, count: awaited}
}

func awaitedOf(r *Record) int { return r.count }

// signaledRecord returns the record of a signal for an operation; 0 if none waits for it.
func signaledRecord(run ID, number int, s *Signal, now int64) Record {
	return Record{Kind: Signaled, Run: run, Step: number, At: now, Text: s.Name + "\x00" + s.ID + "\x00" + s.By, Data: s.Data}
}

// keptRecord returns the record of a signal that the run has kept until now.
func keptRecord(run ID, number int, s *signal, now int64) Record {
	rec := signaledRecord(run, number, &Signal{Name: s.name, Data: s.data}, now)
	rec.Text, rec.count, rec.format = s.name+"\x00\x00", 1, ChildFormat
	return rec
}

// Signal returns the name, the id and the sender of a record of kind Signaled.
func (r *Record) Signal() (name, id, by string) {
	name, rest, _ := strings.Cut(r.Text, "\x00")
	id, by, _ = strings.Cut(rest, "\x00")
	return name, id, by
}

// wasKept reports whether the run has kept the signal of the record until now.
func wasKept(r *Record) bool { return r.count > 0 }

// childRecord returns the record of the end of the child of an operation. It has the output of the
// child or the code of its error.
func childRecord(e *ChildEnd, now int64) Record {
	rec := Record{Kind: ChildEnded, Run: e.Parent.Run, Step: e.Parent.Number, At: now, other: e.Child, Reason: e.Reason, Text: e.Text, Data: e.Output, count: e.Undos}
	if e.Reason != 0 {
		setOpCode(&rec, e.Code)
	}
	return rec
}

// childUndos returns how often the operations of the child of a record of kind ChildEnded were undone.
func childUndos(r *Record) int { return r.count }

// canceledOpRecord says that an operation ends because its run undoes its operations. It is not stored.
func canceledOpRecord(number int, child ID, at int64) Record {
	return Record{Step: number, At: at, other: child, Reason: retry.StopCanceled, Text: "the run undoes its operations", Data: []byte(canceledOp)}
}

// setOpCode sets the code of the failure in a record that ends an operation.
func setOpCode(r *Record, code string) { r.Data = []byte(code) }

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

// outcomeAfterUndo returns the outcome that the run of a record of kind Undoing gets.
func outcomeAfterUndo(r *Record) Outcome { return Outcome(r.count) }

// nextRecord returns a record of kind Replaced or Continued.
func nextRecord(kind Kind, run, next ID, now int64) Record {
	return Record{Kind: kind, Run: run, At: now, other: next}
}

// nextOf returns the run that replaces the run of the record, or continues its work.
func nextOf(r *Record) ID { return r.other }

func adoptedRecord(run ID, parent Parent, now int64) Record {
	return Record{Kind: Adopted, Run: run, At: now, other: parent.Run, count: parent.Number}
}

// parentOf returns the operation that waits for the run of a record of kind Adopted.
func parentOf(r *Record) *Parent { return &Parent{Run: r.other, Number: r.count} }

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
