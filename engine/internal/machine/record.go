package machine

import (
	"encoding/binary"
	"time"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// Kind is the kind of a record. The numbers are stored: add new kinds at the end, and never
// change or remove one.
type Kind uint8

// The kinds of records.
const (
	Opened     Kind = iota + 1 // an owner took over the shard: Text is the id of its machine's boot
	Defined                    // Data is a definition
	Started                    // a run was accepted; Due is its start, Delay the wait for it, or 0 if Due is a point of the wall clock
	Begun                      // an attempt begins; its handler is called after this is stored
	Done                       // an attempt succeeded; Data is its output
	Failed                     // an attempt failed; Reason says why the step gives up, or Due when the next attempt begins
	Snoozed                    // an attempt has not failed, and is to be made again at Due
	Lost                       // an attempt was lost because the process died
	Released                   // an attempt was ended because the process is closed, or the run paused or postponed; it is made again
	Cancel                     // the run is canceled; Text says by whom
	Expired                    // the run timed out; Text says whether it was in the queue then
	Retry                      // a dead run is retried; Text says by whom; it may keep the children of its operations
	Woken                      // a user ended a wait; Text says who
	Progress                   // an attempt reported its progress in Data
	Parked                     // a step waits for its handler, which is not registered
	Unparked                   // the handler of a parked step is registered now
	Late                       // an attempt ended after its run; Text says how
	Jumped                     // the wall clock was set: Delay says by how much
	Purged                     // old runs are deleted: see purge
	Cron                       // a schedule was set or deleted
	Replaced                   // another run replaces this dead run
	Omitted                    // only in a history: replaces the records that were removed here
	Limited                    // a service has said when to come back: it uses a window instead of an attempt
	Held                       // the run is paused; Text says by whom
	Freed                      // the run is resumed; Text says by whom
	Postponed                  // a user moved a wait to Due; Text says who
	Forgiven                   // a user reset the counters of the run; Text says who
	Called                     // the function of a flow called the operation Text; Hash is its definition, Due the end of a sleep, Data its result; it may have a question or a child, and its first attempt may begin
	Suspended                  // a call of the function ended, because it waits for operations; it is called again when some of them have ended
	Described                  // the function set the status of the run to Text and, if there is Data, its tags to that JSON object
	Continued                  // the run ended, and another run continues its work
	Signaled                   // a signal came, with the payload Data: Step waited for it, or 0 if none did
	NoSignal                   // the time was over in which Step waited for a signal
	ChildEnded                 // the child for which Step waited has ended: Data is its result, or Reason says why it failed
	ParentTold                 // the parent of the run has recorded its end
	Undoing                    // the run undoes its operations, and then gets an outcome; Text says why
	Undone                     // everything is undone, or Reason and Text say which undo failed
	Halted                     // a workflow is paused or resumed
	Adopted                    // an operation of another run waits for this run, and is its parent
	kinds
)

var kindNames = [...]string{
	"", "opened", "defined", "started", "begun", "done", "failed", "snoozed", "lost", "released", "canceled", "expired",
	"retried", "woken", "progress", "parked", "unparked", "late", "jumped", "purged", "cron", "replaced", "omitted",
	"limited", "paused", "resumed", "postponed", "reset", "called", "suspended", "described", "continued", "signaled", "no-signal", "child-ended", "parent-told", "undoing", "undone", "halted", "adopted",
}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Record is one event in the log. The comment of its kind says what the fields mean; for those that
// are not exported, see record_kinds.go.
type Record struct {
	Kind     Kind
	Run      ID
	Step     int
	At       int64 // when it happened
	Attempt  int
	Due      int64         // when the next attempt or start is due
	Delay    time.Duration // the wait, as it was decided
	Prev     time.Duration // the delay that the policy computed: see retry.State
	By       retry.Source  // what decided the wait
	Reason   retry.Reason  // why the step gives up; 0 if it does not
	Deadline int64         // deadline of the run or the attempt; 0 means none
	Hash     Hash          // hash of the definition
	Text     string
	Data     []byte
	Ends     Outcome // the outcome that the record gives the run; Undecided if none
	Clock    bool    // Due is a point of the wall clock, which stays the same when the clock is set

	other   ID       // another run
	count   int      // a number, or a flag
	outputs [][]byte // outputs of steps, and other data

	format byte // format of the entry that the record needs; 0 means the oldest
}

// The bits that say which fields of a record are encoded. The numbers are stored.
const (
	hasRun = 1 << iota
	hasStep
	hasAttempt
	hasDue
	hasDelay
	hasPrev
	hasBy
	hasReason
	hasDeadline
	hasOther
	hasHash
	hasText
	hasData
	hasOutputs
	hasEnds
	isClock
	hasCount
	hasAll = 1<<iota - 1
)

func (r *Record) mask() (m uint64) {
	set := func(there bool, bit uint64) {
		if there {
			m |= bit
		}
	}
	set(!r.Run.IsZero(), hasRun)
	set(r.Step != 0, hasStep)
	set(r.Attempt != 0, hasAttempt)
	set(r.Due != 0, hasDue)
	set(r.Delay != 0, hasDelay)
	set(r.Prev != 0, hasPrev)
	set(r.By != 0, hasBy)
	set(r.Reason != 0, hasReason)
	set(r.Deadline != 0, hasDeadline)
	set(!r.other.IsZero(), hasOther)
	set(r.Hash != Hash{}, hasHash)
	set(r.Text != "", hasText)
	set(r.Data != nil, hasData)
	set(r.outputs != nil, hasOutputs)
	set(r.Ends != 0, hasEnds)
	set(r.Clock, isClock)
	set(r.count != 0, hasCount)
	return m
}

// The versions of the stored formats. Entries and snapshots with a newer version than Format
// are rejected with ErrFormat. Entries and snapshots without flows and without paused workflows
// are written in the oldest version, so that an older program can read them.
const (
	FirstFormat = 1
	flowFormat  = 2 // with flows
	PauseFormat = 3 // with paused workflows
	ChildFormat = 4 // with children that a retry of their parent continues, and kept signals for renamed operations
	Format      = journal.Format
)

// Format returns the format of the entry that the record needs, if it is newer than its kind.
func (r *Record) Format() int { return int(r.format) }

// entryFormat returns the format of an entry that has the record.
func (r *Record) entryFormat() byte {
	switch {
	case r.Kind >= Adopted:
		return ChildFormat
	case r.Kind >= Halted:
		return PauseFormat
	case r.Kind >= Called:
		return max(r.format, flowFormat)
	}
	return r.format
}

// Size returns an upper bound of the bytes that the record takes in an entry.
func (r *Record) Size() int {
	n := 200 + len(r.Text) + len(r.Data)
	for _, out := range r.outputs {
		n += len(out) + 10
	}
	return n
}

// append appends the encoded record to b. Times are encoded relative to base.
func (r *Record) append(b []byte, base int64) []byte {
	m := r.mask()
	b = append(b, byte(r.Kind))
	b = binary.AppendUvarint(b, m)
	b = binary.AppendVarint(b, r.At-base)
	if m&hasRun != 0 {
		b = append(b, r.Run[:]...)
	}
	if m&hasStep != 0 {
		b = binary.AppendUvarint(b, uint64(r.Step))
	}
	if m&hasAttempt != 0 {
		b = binary.AppendUvarint(b, uint64(r.Attempt))
	}
	if m&waitFields != 0 {
		b = r.appendWait(b, base, m)
	}
	if m&hasOther != 0 {
		b = append(b, r.other[:]...)
	}
	if m&hasHash != 0 {
		b = append(b, r.Hash[:]...)
	}
	if m&hasText != 0 {
		b = codec.AppendBytes(b, r.Text)
	}
	if m&hasData != 0 {
		b = codec.AppendBytes(b, r.Data)
	}
	if m&hasOutputs != 0 {
		b = appendOutputs(b, r.outputs)
	}
	if m&hasEnds != 0 {
		b = append(b, byte(r.Ends))
	}
	if m&hasCount != 0 {
		b = binary.AppendUvarint(b, uint64(r.count))
	}
	return b
}

// appendWait is append for the fields about the next attempt.
func (r *Record) appendWait(b []byte, base int64, m uint64) []byte {
	if m&hasDue != 0 {
		b = binary.AppendVarint(b, r.Due-base)
	}
	if m&hasDelay != 0 {
		b = binary.AppendVarint(b, int64(r.Delay))
	}
	if m&hasPrev != 0 {
		b = binary.AppendVarint(b, int64(r.Prev))
	}
	if m&hasBy != 0 {
		b = append(b, byte(r.By))
	}
	if m&hasReason != 0 {
		b = append(b, byte(r.Reason))
	}
	if m&hasDeadline != 0 {
		b = binary.AppendVarint(b, r.Deadline-base)
	}
	return b
}

// read decodes a record that append wrote. Its byte slices share the memory of the input.
func (r *Record) read(in *codec.Reader, base int64) {
	*r = Record{Kind: Kind(in.Byte())}
	m := in.Uvarint()
	if r.Kind == 0 || r.Kind >= kinds || m&^hasAll != 0 {
		in.Fail()
		return
	}
	r.At = base + in.Varint()
	if m&hasRun != 0 {
		r.Run = in.Array()
	}
	if m&hasStep != 0 {
		r.Step = in.Number()
	}
	if m&hasAttempt != 0 {
		r.Attempt = in.Number()
	}
	if m&waitFields != 0 {
		r.readWait(in, base, m)
	}
	if m&hasOther != 0 {
		r.other = in.Array()
	}
	if m&hasHash != 0 {
		r.Hash = in.Array()
	}
	if m&hasText != 0 {
		r.Text = string(in.Bytes())
	}
	if m&hasData != 0 {
		r.Data = in.Bytes()
	}
	if m&hasOutputs != 0 {
		r.outputs = readOutputs(in)
	}
	if m&hasEnds != 0 {
		r.Ends = Outcome(in.Byte())
	}
	if m&hasCount != 0 {
		r.count = in.Number()
	}
	r.Clock = m&isClock != 0
}

// readWait is read for the fields about the next attempt.
func (r *Record) readWait(in *codec.Reader, base int64, m uint64) {
	if m&hasDue != 0 {
		r.Due = base + in.Varint()
	}
	if m&hasDelay != 0 {
		r.Delay = time.Duration(in.Varint())
	}
	if m&hasPrev != 0 {
		r.Prev = time.Duration(in.Varint())
	}
	if m&hasBy != 0 {
		r.By = retry.Source(in.Byte())
	}
	if m&hasReason != 0 {
		r.Reason = retry.Reason(in.Byte())
	}
	if m&hasDeadline != 0 {
		r.Deadline = base + in.Varint()
	}
}

// Groups of fields: by the form in which they are encoded, and those that appendWait encodes.
const (
	arrayFields  = hasRun | hasOther | hasHash
	numberFields = hasStep | hasAttempt | hasDue | hasDelay | hasPrev | hasDeadline | hasCount
	byteFields   = hasBy | hasReason | hasEnds
	textFields   = hasText | hasData
	waitFields   = hasDue | hasDelay | hasPrev | hasBy | hasReason | hasDeadline
)

// skipRecord skips a record that append wrote, and returns its time. It decodes nothing else.
func skipRecord(in *codec.Reader, base int64) (at int64) {
	in.Byte()
	m := in.Uvarint()
	at = base + in.Varint()
	for m &= hasAll &^ isClock; m != 0 && in.Err == nil; m &= m - 1 { // in the order of append
		switch field := m & -m; {
		case field&arrayFields != 0:
			in.Array()
		case field&numberFields != 0:
			in.Uvarint() // a signed number has the same form
		case field&byteFields != 0:
			in.Byte()
		case field&textFields != 0:
			in.Bytes()
		default:
			readOutputs(in)
		}
	}
	return at
}

// appendOutputs encodes outputs. A nil output is not the same as an empty one.
func appendOutputs(b []byte, outputs [][]byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(outputs)))
	for _, out := range outputs {
		if out == nil {
			b = append(b, 0)
			continue
		}
		b = append(b, 1)
		b = codec.AppendBytes(b, out)
	}
	return b
}

// maxSteps limits the steps of a workflow.
const maxSteps = 1000

func readOutputs(in *codec.Reader) [][]byte {
	n := in.Number()
	if n > maxSteps+3 || n > len(in.Data) { // more than steps: see startRecord
		in.Fail()
		return nil
	}
	outputs := make([][]byte, n)
	for i := range outputs {
		if in.Byte() == 1 {
			outputs[i] = in.Bytes()
		}
	}
	return outputs
}

func partOf(parts [][]byte, step int) []byte {
	if step >= len(parts) {
		return nil
	}
	return parts[step]
}

// bitIf returns the bit if set is true, else 0.
func bitIf(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}
