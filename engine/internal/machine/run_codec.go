package machine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// The flags of a run, and of a step beside its status. The numbers are stored.
const (
	runFailing  = 1
	runHeld     = 2
	runIdle     = 4 // not Run.active
	runUntil    = 8 // extra.until follows
	runRetried  = 16
	runFlow     = 32   // the operations follow
	runParent   = 64   // extra.parent follows
	runDelayed  = 128  // Run.delayed; older versions ignore it
	stepClock   = 0x80 // StepState.clock
	stepWindows = 0x40 // StepState.Windows follows
)

// EncodeRun appends a run that is not cold to b, in the form that Decode reads.
func EncodeRun(r *Run, b []byte) []byte {
	b = append(b, r.ID[:]...)
	b = append(b, r.Def.hash[:]...)
	b = binary.AppendUvarint(b, r.version)
	b = binary.AppendVarint(b, r.Created)
	b = binary.AppendVarint(b, r.Deadline)
	b = binary.AppendVarint(b, r.Ended)
	flags := bitIf(r.Failing, runFailing) | bitIf(r.Held, runHeld) | bitIf(!r.active, runIdle) |
		bitIf(r.extra.read().until != 0, runUntil) | bitIf(r.retried, runRetried) | bitIf(r.flow != nil, runFlow) | bitIf(r.extra.read().parent != nil, runParent) |
		bitIf(r.delayed, runDelayed)
	b = append(b, byte(r.Outcome), byte(r.Reason), flags)
	if flags&runUntil != 0 {
		b = binary.AppendVarint(b, r.extra.until)
	}
	if flags&runParent != 0 {
		b = codec.AppendBytes(b, r.extra.parent.encode())
	}
	b = codec.AppendBytes(b, r.Key)
	b = codec.AppendBytes(b, r.Input)
	b = codec.AppendBytes(b, r.History)
	if r.flow != nil {
		b = appendFlow(r.flow, b)
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		flags := byte(s.Status) | bitIf(s.clock, stepClock) | bitIf(s.Windows > 0, stepWindows)
		b = append(b, flags)
		if s.Windows > 0 {
			b = binary.AppendUvarint(b, uint64(s.Windows))
		}
		b = binary.AppendVarint(b, s.At)
		b = binary.AppendVarint(b, s.First)
		b = binary.AppendVarint(b, int64(s.Prev))
		b = binary.AppendUvarint(b, uint64(s.Attempt))
		b = binary.AppendUvarint(b, uint64(s.Spent))
		b = binary.AppendUvarint(b, uint64(s.Lost))
	}
	if r.extra == nil {
		return append(b, 0)
	}
	x := r.extra
	b = append(b, 1)
	b = appendOutputs(b, x.outputs)
	b = appendOutputs(b, x.progress)
	b = append(b, x.previous[:]...)
	b = append(b, x.replacedBy[:]...)
	return codec.AppendBytes(b, x.source)
}

// isVersion reports whether encoded is the run in its current version.
func isVersion(r *Run, encoded []byte) bool {
	in := codec.Reader{Data: encoded}
	return ID(in.Array()) == r.ID && Hash(in.Array()) == r.Def.hash && in.Uvarint() == r.version && in.Err == nil
}

// EncodeWithout is Encode without the input, for a caller that stores the input elsewhere.
func EncodeWithout(r *Run, b []byte) []byte {
	input := r.Input
	r.Input = nil
	b = EncodeRun(r, slices.Grow(b, 200+len(r.Key)+len(r.History)+len(r.flow.Results())))
	r.Input = input
	return b
}

// runDecoder decodes runs. It needs their definitions.
type runDecoder struct {
	definitions *definitionSet
	names       nameCache
}

// nameCache has names of operations, so that runs of the same workflow share them.
type nameCache map[string]string

// maxNames limits the names of a nameCache.
const maxNames = 1000

// get returns the name as a string.
func (c *nameCache) get(name []byte) string {
	if known, ok := (*c)[string(name)]; ok {
		return known
	}
	if *c == nil || len(*c) == maxNames {
		*c = nameCache{}
	}
	text := string(name)
	(*c)[text] = text
	return text
}

// Decode decodes a single run. The run is not part of the state.
func (d *runDecoder) Decode(data []byte) (*Run, error) {
	in := codec.Reader{Data: data}
	return d.readRun(&in)
}

// readRun decodes a run. The run does not share the memory of the input.
func (d *runDecoder) readRun(in *codec.Reader) (*Run, error) {
	var p parsedRun
	r, err := d.parseAgain(&p, in)
	if err == nil {
		copyParts(r)
	}
	return r, err
}

// copyParts replaces the parts of the run that share the memory of a parsedRun and of the decoded
// input by copies, except for the steps.
func copyParts(r *Run) {
	r.body = &body{append([]byte(nil), r.Input...), append([]byte(nil), r.History...)}
	if r.extra != nil {
		r.extra.outputs = cloned(r.extra.outputs, len(r.Def.Steps))
	}
	if r.flow != nil {
		f := *r.flow
		f.ops, f.results = append([]op(nil), f.ops...), append([]byte(nil), f.results...)
		r.flow = &f
	}
}

// parsedRun is a run as it was decoded, and memory for the next one.
type parsedRun struct {
	run  Run
	body body
	flow Flow
}

// parseAgain decodes a run. It uses the memory of the run that was decoded before. The input,
// history, outputs and results of operations share the memory of the input.
func (d *runDecoder) parseAgain(p *parsedRun, in *codec.Reader) (*Run, error) {
	r := &p.run
	*r = Run{ID: in.Array(), timer: noTimer, Steps: r.Steps, body: &p.body}
	hash := Hash(in.Array())
	def, ok := d.definitions.defs[hash]
	if in.Err != nil || !ok {
		return nil, fmt.Errorf("%w: run %s has an unknown definition", ErrEncoding, r.ID)
	}
	r.Def = def
	r.version = in.Uvarint()
	r.Created = in.Varint()
	r.Deadline = in.Varint()
	r.Ended = in.Varint()
	r.Outcome = Outcome(in.Byte())
	r.Reason = retry.Reason(in.Byte())
	flags := in.Byte()
	r.Failing, r.Held, r.active = flags&runFailing != 0, flags&runHeld != 0, flags&runIdle == 0
	r.retried, r.delayed = flags&runRetried != 0, flags&runDelayed != 0
	if flags&runUntil != 0 {
		r.more().until = in.Varint()
	}
	if flags&runParent != 0 {
		parent, err := readParent(in.Bytes())
		if err != nil {
			return nil, err
		}
		r.more().parent = parent
	}
	r.Key = string(in.Bytes())
	r.Input = in.Bytes()
	r.History = in.Bytes()
	steps := len(def.Steps)
	if flags&runFlow != 0 {
		r.flow = &p.flow
		if err := d.readFlow(r.flow, in); err != nil {
			return nil, err
		}
		steps += len(r.flow.ops)
	}
	r.Steps = slices.Grow(r.Steps[:0], steps)[:steps]
	for i := range r.Steps {
		s := &r.Steps[i]
		*s = StepState{timer: noTimer}
		flags := in.Byte()
		s.Status, s.clock = Status(flags&^(stepClock|stepWindows)), flags&stepClock != 0
		if flags&stepWindows != 0 {
			s.Windows = uint16(in.Number())
		}
		s.At = in.Varint()
		s.First = in.Varint()
		s.Prev = time.Duration(in.Varint())
		s.Attempt = int32(in.Number())
		s.Spent = int32(in.Number())
		s.Lost = uint16(in.Number())
		if s.Status > NoHandler {
			in.Fail()
		}
		if s.Status == Running {
			r.running++
		}
	}
	if in.Byte() == 1 {
		x := r.more()
		x.outputs = readOutputs(in)
		x.progress = cloned(readOutputs(in), len(r.Def.Steps))
		x.previous = in.Array()
		x.replacedBy = in.Array()
		x.source = string(in.Bytes())
	}
	if r.Outcome > Canceled {
		in.Fail()
	}
	return r, in.Err
}

// cloned returns parts with copied elements; nil if there are not n of them.
func cloned(parts [][]byte, n int) [][]byte {
	if len(parts) != n {
		return nil
	}
	for i, p := range parts {
		if p != nil {
			parts[i] = append([]byte{}, p...)
		}
	}
	return parts
}
