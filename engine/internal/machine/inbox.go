package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tideover/tideover/engine/internal/codec"
)

// A signal is a message to a run of a flow. It has a name, and is for an operation that waits for
// that name: see AwaitKind. If none waits, the run keeps the signal until its function calls such
// an operation.

// ErrSignals says that a run has too many signals that it has not waited for.
var ErrSignals = errors.New("too many signals")

const (
	// MaxSignals is how many signals a run can have that no operation has waited for.
	MaxSignals = 1000

	// MaxSignalBytes is how many bytes these signals can have together: the run that continues
	// another one gets its signals in one entry of the log, with its input.
	MaxSignalBytes = 256 << 10

	maxInherited = 1000 // ids of earlier signals that the run gets that continues another one
	signalBytes  = 64   // size of a signal beside its name and data, at most
)

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

// append encodes the inbox; nil is no bytes.
func (b *inbox) append(to []byte) []byte {
	if b == nil {
		return to
	}
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
