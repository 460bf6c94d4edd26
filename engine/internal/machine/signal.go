package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// A signal is a message to a run of a flow. It has a name, and is for an operation that waits for
// that name: see AwaitKind. If none waits, the run keeps the signal until its function calls such
// an operation.

// The kinds, in the identity of an operation, of those that wait for a signal.
const (
	AwaitKind = "await" // the name of the operation, without a key, is that of the signal
	AskKind   = "ask"   // the signal has the identity of the operation as its name, and answers its question
)

const (
	// MaxSignals is how many signals a run can have that no operation has waited for.
	MaxSignals = 1000

	// MaxSignalBytes is how many bytes these signals can have together: the run that continues
	// another one gets its signals in one entry of the log, with its input.
	MaxSignalBytes = 256 << 10

	maxInherited = 1000 // ids of earlier signals that the run gets that continues another one
	signalBytes  = 64   // size of a signal beside its name and data, at most
)

// ErrSignals says that a run has too many signals that it has not waited for.
var ErrSignals = errors.New("too many signals")

// NoEvent is the code of the failure of an operation that has waited for a signal in vain.
const NoEvent = "no-event"

// inbox has the signals of a run.
type inbox struct {
	signals []signal // those that no operation has waited for, oldest first
	seen    []Hash   // ids of all signals that were accepted
	size    int32    // bytes of signals
}

// signal is a signal that no operation has waited for yet.
type signal struct {
	name string
	data []byte
}

func (s *signal) size() int32 { return int32(signalBytes + len(s.name) + len(s.data)) }

// Signal is a request to send a signal to a run.
type Signal struct {
	Run    ID
	Name   string
	Former []string // names that operations which wait for this signal may have, because they were renamed
	ID     string   // of two signals with the same id the run gets only one
	By     string   // who sends it
	Data   []byte
}

// Signal decides to send a signal to a run. known is true if the run has got a signal with the
// same id before; then there is no record.
func (c Commands) Signal(s *Signal, now int64) (rec Record, known bool, err error) {
	r, err := c.find(s.Run)
	if err != nil {
		return rec, false, err
	}
	if r.HasSignal(s.ID) {
		return rec, true, nil
	}
	if err := r.accepts(s); err != nil {
		return rec, false, err
	}
	rec = Record{
		Kind: Signaled, Run: s.Run, Step: r.flow.waitsForAny(s), At: now,
		Text: s.Name + "\x00" + s.ID + "\x00" + s.By, Data: s.Data,
	}
	return rec, false, nil
}

// accepts returns an error if the run can't get the signal.
func (r *Run) accepts(s *Signal) error {
	if r.flow == nil {
		return fmt.Errorf("%w: workflow %q has no function that could wait for the signal %s", ErrState, r.Def.Name, s.Name)
	}
	if r.Outcome != Undecided {
		return fmt.Errorf("%w: run %s is %s, and takes no signals", ErrState, r.ID, r.State())
	}
	got := r.flow.inbox.read()
	added := signal{s.Name, s.Data}
	switch {
	case int(r.flow.size)+int(got.size)+len(s.Data) > MaxResults:
		return fmt.Errorf("%w: the results of run %s would have more than %d MiB", ErrSignals, r.ID, MaxResults>>20)
	case r.flow.waitsForAny(s) > 0:
		return nil
	case len(got.signals) >= MaxSignals:
		return fmt.Errorf("%w: run %s has %d that it has not waited for, the most that it can have", ErrSignals, r.ID, MaxSignals)
	case got.size+added.size() > MaxSignalBytes:
		return fmt.Errorf("%w: those that run %s has not waited for would have more than %d KiB", ErrSignals, r.ID, MaxSignalBytes>>10)
	}
	return nil
}

// DeliverKept decides to give a signal that the run has kept to an operation that waits for it by
// another name: identity is that which the function gives the operation now. ok is false if there is
// no such signal, or the operation has ended. Older versions can't read the record.
func (c Commands) DeliverKept(r *Run, n int, identity string, now int64) (rec Record, ok bool) {
	name, isAwait := awaited(identity)
	if !isAwait || !r.IsAwait(n) {
		return rec, false
	}
	for _, s := range r.flow.inbox.read().signals {
		if s.name == name {
			return Record{Kind: Signaled, Run: r.ID, Step: n, At: now, Text: name + "\x00\x00", Data: s.data, Count: 1, format: ChildFormat}, true
		}
	}
	return rec, false
}

// SplitSignal returns the name of the signal and its sender, from the text of a record of kind
// Signaled.
func SplitSignal(text string) (name, by string) {
	name, rest, _ := strings.Cut(text, "\x00")
	_, by, _ = strings.Cut(rest, "\x00")
	return name, by
}

// noSignal decides that the time is over in which an operation waits for a signal.
func (c Commands) noSignal(r *Run, n int, now int64) Record {
	text := "no answer in time"
	if name, ok := strings.CutPrefix(r.Identity(n), AwaitKind+":"); ok {
		text = fmt.Sprintf("no signal %s came in time", name)
	}
	return Record{Kind: NoSignal, Run: r.ID, Step: n, At: now, Reason: retry.StopTimeout, Text: text, Data: []byte(NoEvent)}
}

// HasSignal reports whether the run has got a signal with this id. The run must not be cold.
func (r *Run) HasSignal(id string) bool {
	return r.flow != nil && id != "" && slices.Contains(r.flow.inbox.read().seen, signalHash(id))
}

// Asks reports whether the run waits for the answer to a question. The run must not be cold.
func (r *Run) Asks() bool {
	return r.flow != nil && r.Outcome == Undecided && slices.ContainsFunc(r.flow.ops, func(o op) bool { return strings.HasPrefix(o.name, AskKind+":") })
}

// awaitedHint returns, as the end of an error, which signal the run waits for; "" if it waits for
// none.
func (r *Run) awaitedHint() string {
	if r.flow == nil || r.Outcome != Undecided {
		return ""
	}
	for i := range r.flow.ops {
		if name, ok := awaited(r.flow.ops[i].name); ok {
			if name == r.flow.ops[i].name {
				return fmt.Sprintf("; it waits for the answer to %s", OpName(name))
			}
			return fmt.Sprintf("; it waits for the signal %s", name)
		}
	}
	return ""
}

// IsAwait reports whether a step is an operation that waits for a signal. The run must not be
// cold.
func (r *Run) IsAwait(n int) bool {
	if r.flow == nil || n == 0 {
		return false
	}
	_, ok := awaited(r.Identity(n))
	return ok
}

// awaited returns the name of the signal for which the operation with this identity waits; ok is
// false if the operation is of another kind.
func awaited(identity string) (name string, ok bool) {
	kind, name, _ := strings.Cut(identity, ":")
	if kind == AskKind {
		return identity, true
	}
	name, _, _ = strings.Cut(name, "[") // the key of ForKey
	return name, kind == AwaitKind
}

// waitsFor returns the number of the first operation that waits for a signal with this name; 0 if
// there is none.
func (f *flow) waitsFor(name string) int {
	for i := range f.ops {
		if s, ok := awaited(f.ops[i].name); ok && s == name {
			return int(f.ops[i].number)
		}
	}
	return 0
}

// waitsForAny is waitsFor for a signal and its former names.
func (f *flow) waitsForAny(s *Signal) int {
	for _, name := range append([]string{s.Name}, s.Former...) {
		if n := f.waitsFor(name); n > 0 {
			return n
		}
	}
	return 0
}

// applySignaled gives the signal to the operation that waits for it, or keeps it.
func (m *state) applySignaled(r *Run, rec *Record) {
	f := r.flow
	if f.inbox == nil {
		f.inbox = new(inbox)
	}
	name, rest, _ := strings.Cut(rec.Text, "\x00")
	if id, _, _ := strings.Cut(rest, "\x00"); id != "" {
		f.inbox.seen = append(f.inbox.seen, signalHash(id))
	}
	if rec.Step > 0 {
		if rec.Count > 0 {
			f.inbox.take(name)
		}
		m.endOp(r, rec)
		return
	}
	s := signal{name, bytes.Clone(rec.Data)}
	f.inbox.signals = append(f.inbox.signals, s)
	f.inbox.size += s.size()
}

// take removes the oldest signal with this name.
func (b *inbox) take(name string) (s signal, ok bool) {
	if b == nil {
		return s, false
	}
	i := slices.IndexFunc(b.signals, func(s signal) bool { return s.name == name })
	if i < 0 {
		return s, false
	}
	s = b.signals[i]
	b.signals = slices.Delete(b.signals, i, i+1)
	b.size -= s.size()
	return s, true
}

var noInbox inbox

// read returns b, or an empty inbox if b is nil. The caller must not change it.
func (b *inbox) read() *inbox {
	if b == nil {
		return &noInbox
	}
	return b
}

// signalHash returns the hash of the id of a signal.
func signalHash(id string) Hash {
	sum := sha256.Sum256([]byte(id))
	return Hash(sum[:len(Hash{})])
}

// Inbox returns what the run that continues this one gets: its encoded signals that no operation
// has waited for, and the ids of the last signals. It returns nil if there are none.
func (r *Run) Inbox() []byte {
	if r.flow == nil || r.flow.inbox == nil {
		return nil
	}
	b := *r.flow.inbox
	b.seen = b.seen[max(len(b.seen)-maxInherited, 0):]
	return b.append(nil)
}

// append encodes the inbox.
func (b *inbox) append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(len(b.signals)))
	for _, s := range b.signals {
		to = codec.AppendBytes(to, s.name)
		to = codec.AppendBytes(to, s.data)
	}
	to = binary.AppendUvarint(to, uint64(len(b.seen)))
	for _, id := range b.seen {
		to = append(to, id[:]...)
	}
	return to
}

// readInbox decodes an inbox; nil if data is empty. It does not share the memory of data.
func readInbox(data []byte) (*inbox, error) {
	if len(data) == 0 {
		return nil, nil
	}
	b, in := new(inbox), codec.Reader{Data: data}
	n := in.Number()
	if n > MaxSignals {
		in.Fail()
	}
	for i := 0; i < n && in.Err == nil; i++ {
		s := signal{string(in.Bytes()), bytes.Clone(in.Bytes())}
		b.signals = append(b.signals, s)
		b.size += s.size()
	}
	n = in.Number()
	if n > len(in.Data)/len(Hash{}) {
		in.Fail()
	}
	for i := 0; i < n && in.Err == nil; i++ {
		b.seen = append(b.seen, Hash(in.Array()))
	}
	return b, in.Err
}
