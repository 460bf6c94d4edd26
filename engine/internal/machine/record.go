package machine

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// Kind is the kind of an event that a record records. The numbers are a stored format:
// kinds are only ever added.
type Kind uint8

// The kinds of records.
const (
	Opened    Kind = iota + 1 // an owner took over: Text is the machine's boot
	Defined                   // Data is a definition
	Started                   // a run was accepted
	Begun                     // an attempt begins; its handler has not been called before this is stored
	Done                      // an attempt succeeded; Data is its output
	Failed                    // an attempt failed; either Reason or Due says what follows
	Snoozed                   // an attempt asks to be made again at Due, without having failed
	Lost                      // the process ended in the attempt
	Released                  // the attempt was given up for an orderly end of the process
	Cancel                    // the run is over; Text says by whom
	Expired                   // the run's time is over; Text says it if that was in the queue
	Retry                     // a dead run is put back to work; Text says by whom
	Woken                     // a wait is ended by hand; Text says by whom
	Progress                  // Data says how far the attempt is
	Parked                    // the step's handler is not known here
	Unparked                  // it is known now
	Late                      // an attempt of a run that is over has ended; Text says how
	Jumped                    // the wall clock was set: Delay says by how much
	Purged                    // runs that ended before At, or died before Due, are forgotten, except the dead ones whose ids are Data
	Cron                      // Text is the name of a schedule, Due when it is due next, Data the rest
	Replaced                  // the run Other does the work of this dead one
	Omitted                   // in a history: Attempt records were left out here
	Limited                   // a service has stated when to come back: a window is spent, and no attempt
	Held                      // the run is paused; Text says by whom
	Freed                     // it goes on; Text says by whom
	Postponed                 // a wait is prolonged by hand, until Due; Text says by whom
	Forgiven                  // the attempts that a run has spent count no longer; Text says by whom
	kinds
)

var kindNames = [...]string{
	"", "opened", "defined", "started", "begun", "done", "failed", "snoozed", "lost", "released", "canceled", "expired",
	"retried", "woken", "progress", "parked", "unparked", "late", "jumped", "purged", "cron", "replaced", "omitted",
	"limited", "paused", "resumed", "postponed", "reset",
}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Record is one event. The comment of its kind says which fields it uses.
type Record struct {
	Kind     Kind
	Run      ID
	Step     int
	At       int64 // when it happened
	Attempt  int
	Due      int64         // when the next thing is due
	Delay    time.Duration // the wait, as it was decided
	Prev     time.Duration // the delay that the policy computed
	By       retry.Source  // who set the wait
	Reason   retry.Reason  // why there is no further attempt
	Deadline int64         // when the run, or the attempt, is over at the latest
	Other    ID            // the run that this one came from, or that came from this one
	Hash     Hash          // of the definition
	Text     string
	Data     []byte
	Ends     Outcome  // the record decides the run
	Clock    bool     // Due was asked for by the calendar: it stays when the clock is set
	Outputs  [][]byte // of the steps that need not run again; nil for those that do
}

// The parts of a record that are not always there. The numbers are stored.
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
	return m
}

// Size returns at most how many bytes the record takes in an entry.
func (r *Record) Size() int {
	n := 200 + len(r.Text) + len(r.Data)
	for _, out := range r.Outputs {
		n += len(out) + 10
	}
	return n
}

// append writes the record. Its times are written as distances from base.
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
	return b
}

// read reads a record that append wrote. Its bytes are part of the data.
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
	r.Clock = m&isClock != 0
}

// appendOutputs writes outputs of which some may be missing, which is not the
// same as empty.
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
	if n > maxSteps+1 || n > len(in.Data) { // one more than steps: see Start.outputs
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

// Format is the version of the stored formats. A log or a snapshot of a
// newer one is refused.
const Format = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry gathers the records of one append to the log.
type Entry struct {
	base int64
	data []byte
}

// Reset begins an entry at the time of the wall clock. The elapsed time since the boot of
// the computer shows whether the wall clock was set.
func (e *Entry) Reset(at, sinceBoot int64) {
	e.base = at
	e.data = append(e.data[:0], Format)
	e.data = binary.AppendVarint(e.data, at)
	e.data = binary.AppendVarint(e.data, sinceBoot)
}

// Add adds a record.
func (e *Entry) Add(r *Record) { e.data = r.append(e.data, e.base) }

// Size returns the size of the entry that Bytes would return.
func (e *Entry) Size() int { return len(e.data) + crc32.Size }

// Bytes ends the entry and returns it. It is valid until Reset.
func (e *Entry) Bytes() []byte {
	e.data = binary.LittleEndian.AppendUint32(e.data, crc32.Checksum(e.data, castagnoli))
	return e.data
}

// Header is the times of an entry.
type Header struct {
	At        int64
	SinceBoot int64
}

// ReadEntry calls apply with each record of an entry. The bytes of a record are part of
// the data.
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

// entryBody returns the data without its sum, if that is right and the format is
// one that this version knows.
func entryBody(data []byte) ([]byte, error) {
	if len(data) < crc32.Size+1 {
		return nil, fmt.Errorf("%w: entry of %d bytes", ErrEncoding, len(data))
	}
	body, sum := data[:len(data)-crc32.Size], binary.LittleEndian.Uint32(data[len(data)-crc32.Size:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum of the entry is wrong", ErrEncoding)
	}
	if body[0] != Format {
		return nil, fmt.Errorf("%w: entry has format %d, this version knows %d", ErrFormat, body[0], Format)
	}
	return body, nil
}
