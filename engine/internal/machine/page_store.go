package machine

import (
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine/internal/codec"
)

// A run with a long wait, or a dead run, does not need its input and history in memory. Once a
// snapshot has the current state of the run, these parts can be removed: then the run is cold,
// and has only a reference to its frame in the snapshot. A cold run is read back into memory
// before a record is applied to it.
//
// The machine reads no files: it calls a function that returns the content of a frame. The
// caller calls [Snapshot.Chill] when the frames have been written.

// coldAfter is how long, in nanoseconds, a wait must last for the run to become cold.
const coldAfter = 30e9

// Load returns the content of a frame: a part of a snapshot, with encoded runs. The content is
// valid until the next call.
type Load func(frame uint32) ([]byte, error)

// pageStore reads the parts of cold runs back: their input, history and outputs are in a snapshot
// and not in memory.
type pageStore struct {
	runDecoder
	load  Load             // nil means that there are no cold runs
	flows map[coldOp]*Flow // flows that cold runs share

	decoded  parsedRun // result of decode, whose memory is used again
	refilled Run       // result of whole
}

// coldOp is the only operation of a cold run.
type coldOp struct {
	number int32
	def    *Definition
}

// maxColdFlows limits the flows that cold runs share.
const maxColdFlows = 1000

// Cold sets the function that reads cold runs back from the frames of a snapshot.
func (p *pageStore) Cold(load Load) { p.load = load }

// chillable reports whether the run may become cold: it is dead and not replaced, or it has not
// ended and none of its attempts is running, queued or due soon.
func chillable(r *Run, now int64) bool {
	if mustCancel(r) || r.flow.IsUndoing() {
		return false // a cold run knows neither its children nor how it ends
	}
	if r.Outcome != Undecided || r.running > 0 {
		return r.Closed() && !r.Finished()
	}
	for i := range r.Steps {
		if s := &r.Steps[i]; s.queued || s.Status == Waiting && s.At-now < coldAfter {
			return false
		}
	}
	return true
}

// chill makes the run cold: it removes from memory the parts that can be read back from the
// frame.
func (p *pageStore) chill(r *Run, at place) {
	r.body = &coldBody
	if r.extra != nil {
		r.extra.outputs = nil
	}
	if r.flow != nil && !r.IsCold() {
		r.flow = p.coldFlow(r.flow.ops)
	}
	r.cold = at
}

// coldFlow returns the flow of a cold run with these operations: their numbers and definitions,
// which timers and queues need, and nothing else. Runs that wait for the same operation share
// their flow. Nothing changes it, because a cold run is read back before a record is applied.
func (p *pageStore) coldFlow(ops []op) *Flow {
	if len(ops) != 1 {
		return newColdFlow(ops)
	}
	key := coldOp{ops[0].number, ops[0].def}
	if shared := p.flows[key]; shared != nil {
		return shared
	}
	if p.flows == nil || len(p.flows) == maxColdFlows {
		p.flows = map[coldOp]*Flow{}
	}
	cold := newColdFlow(ops)
	p.flows[key] = cold
	return cold
}

func newColdFlow(ops []op) *Flow {
	cold := &Flow{ops: make([]op, len(ops))}
	for i, o := range ops {
		cold.ops[i] = op{number: o.number, def: o.def}
	}
	return cold
}

// encoded returns a cold run as its frame has it. The bytes are valid until the next call.
func (p *pageStore) encoded(r *Run) ([]byte, error) {
	if p.load == nil {
		return nil, fmt.Errorf("run %s: its input and history are not in memory, and there is no snapshot to read them from", r.ID)
	}
	body, err := p.load(r.cold.frame)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	if uint64(r.cold.at)+uint64(r.cold.size) > uint64(len(body)) {
		return nil, fmt.Errorf("%w: the frame of a snapshot ends before run %s", ErrEncoding, r.ID)
	}
	return body[r.cold.at:][:r.cold.size], nil
}

// decode decodes a cold run from its frame. The result is valid until the next call, and shares
// the memory of the frame.
func (p *pageStore) decode(r *Run) (*Run, error) {
	encoded, err := p.encoded(r)
	if err != nil {
		return nil, err
	}
	decoded, err := p.parseAgain(&p.decoded, &codec.Reader{Data: encoded})
	if err == nil && decoded.ID != r.ID {
		err = fmt.Errorf("%w: the snapshot has run %s instead of run %s", ErrEncoding, decoded.ID, r.ID)
	}
	return decoded, err
}

// warm reads the run back into memory, if it is cold.
func (p *pageStore) warm(r *Run) error {
	if !r.IsCold() {
		return nil
	}
	decoded, err := p.decode(r)
	if err != nil {
		return err
	}
	refill(r, decoded)
	copyParts(r)
	r.cold = place{}
	return nil
}

// refill gives the cold run r the parts that were removed from memory. decoded is the run as its
// frame has it.
func refill(r, decoded *Run) {
	r.body = decoded.body
	if decoded.extra != nil && decoded.extra.outputs != nil {
		r.more().outputs = decoded.extra.outputs
	}
	r.flow = decoded.flow
}

// Copy returns a complete copy of the run that is not part of the state. It shares the results of
// operations with the run, which may be large and do not change any more.
func (p *pageStore) Copy(r *Run) (*Run, error) {
	whole, err := p.whole(r)
	if err != nil {
		return nil, err
	}
	var results []byte
	if whole.flow != nil {
		results = slices.Clip(whole.flow.results) // up to MaxResults, which nothing changes: share them
	}
	if r.IsCold() {
		results = slices.Clone(results) // they are in the memory of a frame
	}
	if len(results) > 0 {
		w, f := *whole, *whole.flow
		f.results = nil
		w.flow, whole = &f, &w
	}
	c, err := p.Decode(EncodeRun(whole, nil))
	if err != nil {
		return nil, err
	}
	if len(results) > 0 {
		c.flow.results = results
	}
	for i := range c.Steps {
		c.Steps[i].queued = r.Steps[i].queued
	}
	return c, nil
}

// Encode appends the complete run to b, in the form that Decode reads.
func (p *pageStore) Encode(b []byte, r *Run) ([]byte, error) {
	if r.IsCold() {
		encoded, err := p.encoded(r)
		if err != nil {
			return b, err
		}
		if isVersion(r, encoded) {
			return append(b, encoded...), nil
		}
	}
	whole, err := p.whole(r)
	if err != nil {
		return b, err
	}
	return EncodeRun(whole, b), nil
}

// whole returns the run with all its parts. For a cold run it returns a copy with the parts from
// its frame, which is valid until another cold run is read. The copy shares other data with the
// run, and must not be changed.
func (p *pageStore) whole(r *Run) (*Run, error) {
	if !r.IsCold() {
		return r, nil
	}
	decoded, err := p.decode(r)
	if err != nil {
		return nil, err
	}
	w := &p.refilled
	*w = *r
	if r.extra != nil {
		x := *r.extra
		w.extra = &x
	}
	refill(w, decoded)
	return w, nil
}

// runWriter writes the runs of a snapshot.
type runWriter struct {
	no      uint32 // number of the snapshot
	next    int    // the runs of runIndex.all from this index on are written; it counts down
	removed []byte // encoded runs that were removed from memory before their turn, and are in no frame yet
	count   uint64 // number of runs written
	err     error  // why a run could not be read
}

// writeRemoved writes a run that is removed from memory, unless it was written already or was
// added after the snapshot began.
func (w *runWriter) writeRemoved(p *pageStore, r *Run) {
	if r.snap != w.no && int(r.index) < w.next {
		r.snap = w.no
		w.add(p, &w.removed, r)
	}
}

// add appends an encoded run to body.
func (w *runWriter) add(p *pageStore, body *[]byte, r *Run) {
	b, err := p.Encode(*body, r)
	if err != nil {
		w.err = err
		return
	}
	*body = b
	w.count++
}
