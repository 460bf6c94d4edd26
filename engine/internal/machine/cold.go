package machine

import "fmt"

// A run that waits for long, or is dead, needs neither its input nor its history
// in memory. Once a snapshot has it as it is, what is left of it is where it
// stands there: it is cold. Whatever happens to it makes it warm again.
//
// The machine reads no files. It is given a function that returns the content of
// a frame, and is told when frames have been written.

// coldAfter is how far ahead a wait must end for the run to be cold.
const coldAfter = 30e9

// Load returns the content of a frame of runs, by its number.
type Load func(frame uint32) ([]byte, error)

// Cold says from where cold runs are read.
func (m *Machine) Cold(load Load) { m.load = load }

// written is a run as it was put into a frame.
type written struct {
	run     *Run
	version uint64
	frame   uint32
	at      uint32 // offset in the content of the frame
}

// chillable reports whether the run can be cold at the time.
func (r *Run) chillable(now int64) bool {
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

// chill drops what the frame has of the run.
func (r *Run) chill(frame, at uint32) {
	r.Input, r.History = nil, nil
	if r.extra != nil {
		r.extra.outputs = nil
	}
	r.coldFrame, r.coldAt = frame, at
}

// Chill makes runs cold that a snapshot has as they are, at most so many, and
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
		if !warm || r.version == w.version && r.chillable(now) {
			r.chill(base+w.frame, w.at)
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

// IsCold reports whether the run's input and history are not in memory.
func (r *Run) IsCold() bool { return r.coldFrame != 0 }

// fetch returns what a cold run has left in its frame.
func (m *Machine) fetch(r *Run) (*Run, error) {
	if m.load == nil {
		return nil, fmt.Errorf("run %s: nowhere to read it from", r.ID)
	}
	body, err := m.load(r.coldFrame)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	if uint64(r.coldAt) >= uint64(len(body)) {
		return nil, fmt.Errorf("%w: run %s is not where it was put", ErrEncoding, r.ID)
	}
	in := reader{data: body[r.coldAt:]}
	left, err := m.readRun(&in)
	if err == nil && left.ID != r.ID {
		err = fmt.Errorf("%w: run %s is where %s was put", ErrEncoding, left.ID, r.ID)
	}
	return left, err
}

// warm brings the run back into memory.
func (m *Machine) warm(r *Run) error {
	if r.coldFrame == 0 {
		return nil
	}
	left, err := m.fetch(r)
	if err != nil {
		return err
	}
	r.restock(left)
	r.coldFrame, r.coldAt = 0, 0
	return nil
}

// restock gives the run what it had left in a frame.
func (r *Run) restock(left *Run) {
	r.Input, r.History = left.Input, left.History
	if left.extra != nil && left.extra.outputs != nil {
		r.more().outputs = left.extra.outputs
	}
}

// Copy returns a copy of the run, whole, that is not part of the state.
func (m *Machine) Copy(r *Run) (*Run, error) {
	data, err := m.Encode(nil, r)
	if err != nil {
		return nil, err
	}
	c, err := m.Decode(data)
	if err == nil {
		for i := range c.Steps {
			c.Steps[i].queued = r.Steps[i].queued
		}
	}
	return c, err
}

// Encode adds the run to b, whole, in the form of Decode.
func (m *Machine) Encode(b []byte, r *Run) ([]byte, error) {
	whole, err := m.whole(r)
	if err != nil {
		return b, err
	}
	return whole.append(b), nil
}

// whole returns the run, if it is cold with what it has left in its frame. It
// shares the rest with the run, and is not to be changed.
func (m *Machine) whole(r *Run) (*Run, error) {
	if r.coldFrame == 0 {
		return r, nil
	}
	left, err := m.fetch(r)
	if err != nil {
		return nil, err
	}
	w := *r
	if r.extra != nil {
		x := *r.extra
		w.extra = &x
	}
	w.restock(left)
	return &w, nil
}
