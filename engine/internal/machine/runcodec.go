package machine

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The flags of a run, and of a step beside its status. The numbers are stored.
const (
	runFailing  = 1
	runHeld     = 2
	runIdle     = 4 // it has no place among those that a limit counts
	runUntil    = 8 // the end of a postponement follows
	runRetried  = 16
	stepClock   = 0x80
	stepWindows = 0x40
)

// append writes the run, to be read with the state around it.
func (r *Run) append(b []byte) []byte {
	b = append(b, r.ID[:]...)
	b = append(b, r.Def.hash[:]...)
	b = binary.AppendUvarint(b, r.version)
	b = binary.AppendVarint(b, r.Created)
	b = binary.AppendVarint(b, r.Deadline)
	b = binary.AppendVarint(b, r.Ended)
	var flags byte
	if r.Failing {
		flags |= runFailing
	}
	if r.Held {
		flags |= runHeld
	}
	if !r.active {
		flags |= runIdle
	}
	if r.extra != nil && r.extra.until != 0 {
		flags |= runUntil
	}
	if r.retried {
		flags |= runRetried
	}
	b = append(b, byte(r.Outcome), byte(r.Reason), flags)
	if flags&runUntil != 0 {
		b = binary.AppendVarint(b, r.extra.until)
	}
	b = appendBytes(b, r.Key)
	b = appendBytes(b, r.Input)
	b = appendBytes(b, r.History)
	for i := range r.Steps {
		s := &r.Steps[i]
		flags := byte(s.Status)
		if s.clock {
			flags |= stepClock
		}
		if s.Windows > 0 {
			flags |= stepWindows
		}
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
	return appendBytes(b, x.source)
}

// readRun reads what append wrote. It copies what it keeps.
func (m *Machine) readRun(in *reader) (*Run, error) {
	r, err := m.parseRun(in)
	if err == nil {
		r.own()
	}
	return r, err
}

// own makes copies of what the run has of the bytes it was read from.
func (r *Run) own() {
	r.Input = append([]byte(nil), r.Input...)
	r.History = append([]byte(nil), r.History...)
	if r.extra != nil {
		r.extra.outputs = cloned(r.extra.outputs, len(r.Steps))
	}
}

// parseRun reads what append wrote. The large parts of the run are part of the
// data.
func (m *Machine) parseRun(in *reader) (*Run, error) {
	r := &Run{ID: in.array(), timer: noTimer}
	hash := Hash(in.array())
	d, ok := m.defs[hash]
	if in.err != nil || !ok {
		return nil, fmt.Errorf("%w: run %s has an unknown definition", ErrEncoding, r.ID)
	}
	r.Def = d
	r.version = in.uvarint()
	r.Created = in.varint()
	r.Deadline = in.varint()
	r.Ended = in.varint()
	r.Outcome = Outcome(in.byte())
	r.Reason = reason(in.byte())
	flags := in.byte()
	r.Failing, r.Held, r.active = flags&runFailing != 0, flags&runHeld != 0, flags&runIdle == 0
	r.retried = flags&runRetried != 0
	if flags&runUntil != 0 {
		r.more().until = in.varint()
	}
	r.Key = string(in.bytes())
	r.Input = in.bytes()
	r.History = in.bytes()
	r.Steps = make([]StepState, len(d.Steps))
	for i := range r.Steps {
		s := &r.Steps[i]
		s.timer = noTimer
		flags := in.byte()
		s.Status, s.clock = Status(flags&^(stepClock|stepWindows)), flags&stepClock != 0
		if flags&stepWindows != 0 {
			s.Windows = uint16(in.number())
		}
		s.At = in.varint()
		s.First = in.varint()
		s.Prev = time.Duration(in.varint())
		s.Attempt = int32(in.number())
		s.Spent = int32(in.number())
		s.Lost = uint16(in.number())
		if s.Status > NoHandler {
			in.fail()
		}
		if s.Status == Running {
			r.running++
		}
	}
	if in.byte() == 1 {
		x := r.more()
		x.outputs = readOutputs(in)
		x.progress = cloned(readOutputs(in), len(r.Steps))
		x.previous = in.array()
		x.replacedBy = in.array()
		x.source = string(in.bytes())
	}
	if r.Outcome > Canceled {
		in.fail()
	}
	return r, in.err
}

// cloned returns copies, or nil if there is not one for each step.
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
