package machine

import (
	"bytes"
	"encoding/binary"

	"github.com/tideover/tideover/engine/internal/codec"
)

// A child is a run that an operation of another run, its parent, has started and waits for. The
// operation ends when the parent records the end of the child. The child is kept in memory until
// then. A parent that has ended, and whose children must be canceled, is kept until these have
// ended.

// Child is the child of an operation that has not ended.
type Child struct {
	Number   int // number of the operation
	ID       ID
	Detached bool // it is not canceled with its parent
	Started  bool // of one in another shard: that shard has stored its start; of one with a Former.ID: it is known which run is the child
	Former   FormerChild
}

// Run returns the run that the operation waits for, as far as that is known.
func (c Child) Run() ID {
	if !c.Started && !c.Former.ID.IsZero() {
		return c.Former.ID
	}
	return c.ID
}

// FormerChild is the child that an operation had before it was called again: by a retry of its run,
// or by a run that repeats its run. The zero value means none.
type FormerChild struct {
	ID     ID  // the run that ended last for the operation; zero if the operation needs a run of its own
	Origin ID  // origin of the former children, which a new child gets: see Origin
	Undos  int // how often the operations of the former children were undone: see AllUndos
}

func (f *FormerChild) append(b []byte) []byte {
	b = append(append(b, f.ID[:]...), f.Origin[:]...)
	return binary.AppendUvarint(b, uint64(f.Undos))
}

func readFormer(in *codec.Reader) FormerChild {
	return FormerChild{ID: in.Array(), Origin: in.Array(), Undos: in.Number()}
}

// after returns the former child for the next call of the operation, when this run has ended it, whose
// operations were undone this often.
func (c *Child) after(run ID, undos int) FormerChild {
	f := FormerChild{ID: run, Origin: c.Former.Origin, Undos: max(c.Former.Undos, undos)}
	if f.Origin.IsZero() {
		f.Origin = c.ID
	}
	return f
}

// Parent is the operation that has started a run.
type Parent struct {
	Run    ID
	Number int  // number of the operation
	Told   bool // the parent has recorded the end of this run, or needs not
}

// Encode returns the child as it is stored with its operation.
func (c *Child) Encode() []byte {
	hasFormer := !c.Former.Origin.IsZero()
	b := append(bytes.Clone(c.ID[:]), bitIf(c.Detached, childDetached)|bitIf(c.Started, childStarted)|bitIf(hasFormer, childFormer))
	if hasFormer { // older versions ignore it
		b = c.Former.append(b)
	}
	return b
}

// The flags of a child. The numbers are stored.
const (
	childDetached = 1
	childStarted  = 2
	childFormer   = 4 // Child.Former follows
)

// encodeParent returns the parent as the record of a start has it.
func (p Parent) encode() []byte {
	b := append(bytes.Clone(p.Run[:]), bitIf(p.Told, 1))
	return binary.AppendUvarint(b, uint64(p.Number))
}

// readParent decodes a parent; nil if data is empty.
func readParent(data []byte) (*Parent, error) {
	if len(data) == 0 {
		return nil, nil
	}
	in := codec.Reader{Data: data}
	p := &Parent{Run: in.Array(), Told: in.Byte() == 1, Number: in.Number()}
	return p, in.Err
}
