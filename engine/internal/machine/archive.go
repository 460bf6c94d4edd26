package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tideover/tideover/retry"
)

// reason reads one that was stored.
func reason(b byte) retry.Reason { return retry.Reason(b) }

// Decode reads a run by itself. It is not part of the state.
func (m *Machine) Decode(data []byte) (*Run, error) {
	in := reader{data: data}
	return m.readRun(&in)
}

// Encode adds a run that is not cold to b, in the form of Decode.
func (r *Run) Encode(b []byte) []byte { return r.append(b) }

// AppendArchive adds a frame with finished runs to b.
func AppendArchive(b []byte, runs []byte) []byte { return frame(b, frameRuns, runs) }

// ReadArchive calls yield with each run of a stream of frames.
func (m *Machine) ReadArchive(stream io.Reader, yield func(*Run) error) error {
	in := bufio.NewReaderSize(stream, 1<<16)
	var buf []byte
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		kind, body, err := readFrame(in, buf)
		if err != nil {
			return err
		}
		if kind != frameRuns {
			return fmt.Errorf("%w: frame %q in an archive", ErrEncoding, kind)
		}
		buf = body
		for r := (reader{data: body}); len(r.data) > 0; {
			run, err := m.readRun(&r)
			if err != nil {
				return err
			}
			if err := yield(run); err != nil {
				return err
			}
		}
	}
}

// EncodeWithout is Encode without the input, for a reader that has it elsewhere.
func (r *Run) EncodeWithout(b []byte) []byte {
	input := r.Input
	r.Input = nil
	b = r.append(slices.Grow(b, 200+len(r.Key)+len(r.History)))
	r.Input = input
	return b
}

// Soil makes the run one that the reader of changes has yet to see.
func (r *Run) Soil() { r.dirty = true }

// Change is Soil, and TakeChanged will return the run.
func (m *Machine) Change(r *Run) {
	r.dirty = true
	m.changed = append(m.changed, r)
}

// Version returns the entry that changed the run last.
func (r *Run) Version() uint64 { return r.version }
