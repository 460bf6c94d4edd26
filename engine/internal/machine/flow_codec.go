package machine

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// appendFlow encodes the operations of a run.
func appendFlow(f *Flow, b []byte) []byte {
	for _, n := range [...]int32{f.count, f.attempts, f.size, f.mustEnd} {
		b = binary.AppendVarint(b, int64(n))
	}
	said := f.described()
	b = codec.AppendBytes(b, said.status)
	b = codec.AppendBytes(b, said.tags)
	b = codec.AppendBytes(b, f.redo)
	b = codec.AppendBytes(b, f.results)
	b = codec.AppendBytes(b, f.inbox.append(nil))
	b = appendUndo(f, b)
	b = binary.AppendUvarint(b, uint64(len(f.ops)))
	for i := range f.ops {
		o := &f.ops[i]
		b = binary.AppendUvarint(b, uint64(o.number))
		b = codec.AppendBytes(b, o.name)
		var def []byte
		if o.def != nil {
			def = o.def.text
		}
		b = codec.AppendBytes(b, def)
		b = codec.AppendBytes(b, o.progress)
	}
	return b
}

// readFlow decodes the operations of a run. It uses the memory of the operations that f has. The
// results share the memory of the input.
func (d *runDecoder) readFlow(f *Flow, in *codec.Reader) error {
	*f = Flow{count: int32(in.Varint()), attempts: int32(in.Varint()), size: int32(in.Varint()), mustEnd: int32(in.Varint()), ops: f.ops[:0]}
	if said := (about{string(in.Bytes()), string(in.Bytes())}); said != (about{}) {
		f.about = &said
	}
	if redo := in.Bytes(); len(redo) > 0 {
		f.redo = slices.Clone(redo)
	}
	f.results = in.Bytes()
	var err error
	if f.inbox, err = readInbox(in.Bytes()); err != nil {
		return err
	}
	readUndo(f, in)
	n := in.Number()
	if n > MaxOps || n > len(in.Data) {
		in.Fail()
		return in.Err
	}
	f.ops = slices.Grow(f.ops, n)
	for range n {
		o := op{number: int32(in.Number()), name: d.names.get(in.Bytes())}
		if text := in.Bytes(); len(text) > 0 && in.Err == nil {
			def, err := d.definitions.operation(text)
			if err != nil {
				return err
			}
			o.def = def
		}
		if p := in.Bytes(); len(p) > 0 {
			o.progress = slices.Clone(p)
		}
		f.ops = append(f.ops, o)
	}
	return in.Err
}

// appendUndo encodes the part of a flow that is about undoing.
func appendUndo(f *Flow, b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.undoable))
	b = append(b, bitIf(f.undo != nil, hasUndo)|bitIf(f.undos > 0, hasUndos))
	if f.undos > 0 {
		b = binary.AppendUvarint(b, uint64(f.undos))
	}
	if u := f.undo; u != nil {
		b = append(b, byte(u.outcome), byte(u.reason), bitIf(u.done, 1))
		b = codec.AppendBytes(b, u.redo)
		b = binary.AppendUvarint(b, uint64(u.since))
	}
	return b
}

func readUndo(f *Flow, in *codec.Reader) {
	f.undoable = int32(in.Number())
	has := in.Byte()
	if has&hasUndos != 0 {
		f.undos = int32(in.Number())
	}
	if has&hasUndo != 0 {
		f.undo = &undo{outcome: Outcome(in.Byte()), reason: retry.Reason(in.Byte()), done: in.Byte() == 1, redo: bytes.Clone(in.Bytes()), since: in.Number()}
	}
}

// Bits that say which parts follow: see appendUndo.
const (
	hasUndo  = 1
	hasUndos = 2
)
