package machine

import (
	"fmt"

	"github.com/tideover/tideover/engine/internal/codec"
)

// A run that waits for long, or is dead, needs neither its input nor its history in
// memory. Once a snapshot has the present state of the run, only its place in the
// snapshot is kept: the run is cold. Each record of a run makes it warm again.
//
// The machine reads no files. It calls a function that returns the content of a frame,
// and [Snapshot.Chill] is called when frames have been written.

// coldAfter is how far ahead a wait must end for the run to be cold.
const coldAfter = 30e9

// Load returns the content of a frame of runs, by its number.
type Load func(frame uint32) ([]byte, error)

// pageStore reads the parts of cold runs that are not in memory.
type pageStore struct {
	runDecoder
	load Load // nil means that there are no cold runs
}

// Cold sets the function that reads frames with cold runs.
func (p *pageStore) Cold(load Load) { p.load = load }

// written is a run as it was written into a frame.
type written struct {
	run     *Run
	version uint64
	frame   uint32
	at      uint32 // offset in the content of the frame
}

// chillable reports whether the run can be cold at the time.
func chillable(r *Run, now int64) bool {
	if r.running > 0 {
		return false
	}
	if r.Outcome == Dead {
		return !r.Finished()
	}
	if r.Outcome != Undecided {
		return false
	}
	for i := range r.Steps {
		if s := &r.Steps[i]; s.queued || s.Status == Waiting && s.At-now < coldAfter {
			return false
		}
	}
	return true
}

// chill removes the parts of the run from memory that the frame has.
func chill(r *Run, frame, at uint32) {
	r.Input, r.History = nil, nil
	if r.extra != nil {
		r.extra.outputs = nil
	}
	r.coldFrame, r.coldAt = frame, at
}

// Chill makes runs cold whose present state the snapshot has, at most so many, and
// moves those that are cold already to it. more is false after the last. base is
// added to the numbers of the frames, to tell them from those of another snapshot.
func (s *Snapshot) Chill(now int64, base uint32, most int) (more bool) {
	n := min(most, len(s.written))
	for _, w := range s.written[:n] {
		r := w.run
		if here, ok := s.m.runs[r.ID]; !ok || here != r {
			continue
		}
		warm := r.coldFrame == 0
		if !warm || r.version == w.version && chillable(r, now) {
			chill(r, base+w.frame, w.at)
			if warm {
				s.Chilled++
			}
		}
	}
	if s.written = s.written[n:]; len(s.written) == 0 {
		s.written = nil
	}
	return s.written != nil
}

// fetch reads a cold run from its frame.
func (p *pageStore) fetch(r *Run) (*Run, error) {
	if p.load == nil {
		return nil, fmt.Errorf("run %s: nowhere to read it from", r.ID)
	}
	body, err := p.load(r.coldFrame)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	if uint64(r.coldAt) >= uint64(len(body)) {
		return nil, fmt.Errorf("%w: run %s is not where it was put", ErrEncoding, r.ID)
	}
	in := codec.Reader{Data: body[r.coldAt:]}
	left, err := p.readRun(&in)
	if err == nil && left.ID != r.ID {
		err = fmt.Errorf("%w: run %s is where %s was put", ErrEncoding, left.ID, r.ID)
	}
	return left, err
}

// warm reads the run back into memory, if it is cold.
func (p *pageStore) warm(r *Run) error {
	if r.coldFrame == 0 {
		return nil
	}
	left, err := p.fetch(r)
	if err != nil {
		return err
	}
	refill(r, left)
	r.coldFrame, r.coldAt = 0, 0
	return nil
}

// refill gives the run the parts that it had left in a frame.
func refill(r, left *Run) {
	r.Input, r.History = left.Input, left.History
	if left.extra != nil && left.extra.outputs != nil {
		r.more().outputs = left.extra.outputs
	}
}

// Copy returns a copy of the run, whole, that is not part of the state.
func (p *pageStore) Copy(r *Run) (*Run, error) {
	data, err := p.Encode(nil, r)
	if err != nil {
		return nil, err
	}
	c, err := p.Decode(data)
	if err == nil {
		for i := range c.Steps {
			c.Steps[i].queued = r.Steps[i].queued
		}
	}
	return c, err
}

// Encode adds the run to b, whole, in the form of Decode.
func (p *pageStore) Encode(b []byte, r *Run) ([]byte, error) {
	whole, err := p.whole(r)
	if err != nil {
		return b, err
	}
	return whole.Encode(b), nil
}

// whole returns the run, a cold one with the parts from its frame. It shares the rest
// with the run, and is not to be changed.
func (p *pageStore) whole(r *Run) (*Run, error) {
	if r.coldFrame == 0 {
		return r, nil
	}
	left, err := p.fetch(r)
	if err != nil {
		return nil, err
	}
	w := *r
	if r.extra != nil {
		x := *r.extra
		w.extra = &x
	}
	refill(&w, left)
	return &w, nil
}
