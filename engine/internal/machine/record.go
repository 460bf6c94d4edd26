package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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
	Retry                      // a dead run is retried; Text says by whom; with the Count 1 the children of its operations are kept
	Woken                      // a user ended a wait; Text says who
	Progress                   // an attempt reported its progress in Data
	Parked                     // a step waits for its handler, which is not registered
	Unparked                   // the handler of a parked step is registered now
	Late                       // an attempt ended after its run; Text says how
	Jumped                     // the wall clock was set: Delay says by how much
	Purged                     // runs that ended before At, or died before Due, are deleted, except the dead runs whose ids are in Data
	Cron                       // a schedule was set: Text is its name, Due its next start, Data the rest; nil Data deletes it
	Replaced                   // the run Other replaces this dead run
	Omitted                    // only in a history: Attempt is the number of records that were removed here
	Limited                    // a service has said when to come back: it uses a window instead of an attempt
	Held                       // the run is paused; Text says by whom
	Freed                      // the run is resumed; Text says by whom
	Postponed                  // a user moved a wait to Due; Text says who
	Forgiven                   // a user reset the counters of the run; Text says who
	Called                     // the function of a flow called the operation Text; Hash is its definition, Due the end of a sleep, Data its result, Outputs the question that it asks; if Attempt is 1, its first attempt begins
	Suspended                  // a call of the function ended, because it waits for operations; it is called again when Count of them have ended
	Described                  // the function set the status of the run to Text and, if there is Data, its tags to that JSON object
	Continued                  // the run ended, and the run Other continues its work
	Signaled                   // a signal came, with the payload Data: Step waited for it, or 0 if none did; Text has its name, id and sender; Count is 1 if the run has kept it until now
	NoSignal                   // the time was over in which Step waited for a signal
	ChildEnded                 // the child Other, for which Step waited, has ended: Data is its result, or Reason says why it failed
	ParentTold                 // the parent of the run has recorded its end
	Undoing                    // the run undoes its operations, and then gets the outcome Count; Text says why
	Undone                     // everything is undone, or Reason and Text say which undo failed
	Halted                     // the workflow Text is paused by Data; with the Count 0 it is resumed
	Adopted                    // the operation Count of the run Other waits for this run, and is its parent
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

// Record is one event in the log. The comment of its kind says what the fields mean.
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
	Other    ID            // Started: the run that this run repeats; Replaced: the run that replaces it
	Hash     Hash          // hash of the definition
	Text     string
	Data     []byte
	Ends     Outcome  // the outcome that the record gives the run; Undecided if none
	Count    int      // Suspended: number of operations; ChildEnded: see FormerChild.Undos
	Clock    bool     // Due is a point of the wall clock, which stays the same when the clock is set
	Outputs  [][]byte // outputs of the steps that do not run again, nil for the others; Failed, Undoing: the code of the error, if it has one

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
	set(!r.Other.IsZero(), hasOther)
	set(r.Hash != Hash{}, hasHash)
	set(r.Text != "", hasText)
	set(r.Data != nil, hasData)
	set(r.Outputs != nil, hasOutputs)
	set(r.Ends != 0, hasEnds)
	set(r.Clock, isClock)
	set(r.Count != 0, hasCount)
	return m
}

// Format returns the format of the entry that the record needs, if it is newer than its kind.
func (r *Record) Format() int { return int(r.format) }

// Size returns an upper bound of the bytes that the record takes in an entry.
func (r *Record) Size() int {
	n := 200 + len(r.Text) + len(r.Data)
	for _, out := range r.Outputs {
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
	if m&hasOther != 0 {
		b = append(b, r.Other[:]...)
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
		b = appendOutputs(b, r.Outputs)
	}
	if m&hasEnds != 0 {
		b = append(b, byte(r.Ends))
	}
	if m&hasCount != 0 {
		b = binary.AppendUvarint(b, uint64(r.Count))
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
	if m&hasOther != 0 {
		r.Other = in.Array()
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
		r.Outputs = readOutputs(in)
	}
	if m&hasEnds != 0 {
		r.Ends = Outcome(in.Byte())
	}
	if m&hasCount != 0 {
		r.Count = in.Number()
	}
	r.Clock = m&isClock != 0
}

// The fields of a record by the form in which they are encoded, for skipRecord.
const (
	arrayFields  = hasRun | hasOther | hasHash
	numberFields = hasStep | hasAttempt | hasDue | hasDelay | hasPrev | hasDeadline | hasCount
	byteFields   = hasBy | hasReason | hasEnds
	textFields   = hasText | hasData
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

func readOutputs(in *codec.Reader) [][]byte {
	n := in.Number()
	if n > maxSteps+3 || n > len(in.Data) { // more than steps: see Start.outputs
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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry encodes the records of one append to the log.
type Entry struct {
	base int64
	data []byte
}

// Reset begins a new entry. at is the time of the wall clock, and sinceBoot the time since the
// boot of the machine: both together show later whether the wall clock was set.
func (e *Entry) Reset(at, sinceBoot int64) {
	e.base = at
	e.data = append(e.data[:0], FirstFormat)
	e.data = binary.AppendVarint(e.data, at)
	e.data = binary.AppendVarint(e.data, sinceBoot)
}

// Add adds a record to the entry.
func (e *Entry) Add(r *Record) {
	format := r.format
	switch {
	case r.Kind >= Adopted:
		format = ChildFormat
	case r.Kind >= Halted:
		format = PauseFormat
	case r.Kind >= Called:
		format = max(format, flowFormat)
	}
	e.data[0] = max(e.data[0], format)
	e.data = r.append(e.data, e.base)
}

// Size returns the size of the entry that Bytes would return.
func (e *Entry) Size() int { return len(e.data) + crc32.Size }

// Bytes adds the checksum and returns the encoded entry. The bytes are valid until Reset.
func (e *Entry) Bytes() []byte {
	e.data = binary.LittleEndian.AppendUint32(e.data, crc32.Checksum(e.data, castagnoli))
	return e.data
}

// Header has the times of an entry. The two times of two entries together show whether the wall
// clock was set between them.
type Header struct {
	At        int64 // time of the wall clock
	SinceBoot int64 // time since the boot of the computer
}

// CheckEntry returns an error if the checksum of an entry is wrong.
func CheckEntry(data []byte) error {
	if _, err := entryBody(data); !errors.Is(err, ErrFormat) { // a newer format is no damage
		return err
	}
	return nil
}

// ReadEntry calls apply with each record of an entry. The byte slices of a record share the
// memory of data.
func ReadEntry(data []byte, apply func(Header, *Record) error) (h Header, err error) {
	data, err = entryBody(data)
	if err != nil {
		return h, err
	}
	in := codec.Reader{Data: data[1:]}
	h = Header{At: in.Varint(), SinceBoot: in.Varint()}
	var r Record
	for len(in.Data) > 0 {
		r.read(&in, h.At)
		if in.Err != nil {
			break
		}
		if err := apply(h, &r); err != nil {
			return h, err
		}
	}
	return h, in.Err
}

// entryBody returns the data of an entry without its checksum. It fails if the checksum is
// wrong or this version does not know the format.
func entryBody(data []byte) ([]byte, error) {
	if len(data) < crc32.Size+1 {
		return nil, fmt.Errorf("%w: entry of %d bytes", ErrEncoding, len(data))
	}
	body, sum := data[:len(data)-crc32.Size], binary.LittleEndian.Uint32(data[len(data)-crc32.Size:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum of the entry is wrong", ErrEncoding)
	}
	if body[0] < FirstFormat || body[0] > Format {
		return nil, fmt.Errorf("%w: entry has format %d, this version knows formats up to %d", ErrFormat, body[0], Format)
	}
	return body, nil
}
