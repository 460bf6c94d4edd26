package machine

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot is written while the machine goes on. It begins with the state without the
// runs, as it was at one entry. The runs follow, each as it is when its turn comes and
// with the entry that changed it last. Replay starts after the entry of the beginning,
// and skips for each run the entries that the run knows.
//
// It is a sequence of frames: a letter, the length, the content, its sum.
const (
	frameState = 's'
	frameRuns  = 'r'
	frameEnd   = 'e'
	maxFrame   = 1 << 30
	fullFrame  = 4 << 20 // gets no further run
)

// Snapshot is a snapshot that is being written.
type Snapshot struct {
	m       *state
	Seq     uint64 // the entry it begins at
	Chilled int    // runs that were moved out of memory into it
	no      uint32
	next    int    // the runs from this index on are written; it counts down
	state   []byte // not yet in a frame
	removed []byte // runs that were removed before their turn, not yet in a frame
	count   uint64
	done    bool
	err     error // of a run that could not be read

	frames  uint32 // written so far
	written []written
}

// Err returns why the snapshot can't be complete.
func (s *Snapshot) Err() error { return s.err }

// Snapshot begins a snapshot, between two entries. There is at most one at a time. The
// state is encoded here and not by the first Next: entries may come between.
func (m *Machine) Snapshot() *Snapshot {
	m.snapshots++
	s := &Snapshot{m: m.state, Seq: m.seq, no: m.snapshots, next: len(m.all), state: encodeState(m.state)}
	m.snapshot = s
	return s
}

// Stop ends the writing, whether it is complete or not.
func (s *Snapshot) Stop() {
	if s.m.snapshot == s {
		s.m.snapshot = nil
	}
}

// writeRemoved writes a run that is removed from memory before its turn.
func (s *Snapshot) writeRemoved(r *Run) {
	if r.snap != s.no && int(r.index) < s.next {
		r.snap = s.no
		s.add(&s.removed, r)
	}
}

// add writes a run.
func (s *Snapshot) add(body *[]byte, r *Run) {
	b, err := s.m.Encode(*body, r)
	if err != nil {
		s.err = err
		return
	}
	*body = b
	s.count++
}

// Next adds the next frame to b, of at most so many runs. more is false after the
// last.
func (s *Snapshot) Next(b []byte, most int) (out []byte, more bool) {
	if state := s.state; state != nil {
		s.state = nil
		s.frames++
		return frame(b, frameState, state), true
	}
	body := s.removed // frame makes a copy of it
	for n := 0; n < most && s.next > 0 && len(body) < fullFrame; n++ {
		// Runs that were added after the beginning are at the end, and need no turn. One
		// that was moved when another was removed may get two.
		s.next = min(s.next, len(s.m.all)) - 1
		if s.next < 0 {
			s.next = 0
			break
		}
		if r := s.m.all[s.next]; r.snap != s.no {
			r.snap = s.no
			s.written = append(s.written, written{r, r.version, s.frames, uint32(len(body))})
			s.add(&body, r)
		}
	}
	s.removed = body[:0]
	if len(body) > 0 {
		s.frames++
		return frame(b, frameRuns, body), true
	}
	if s.next > 0 {
		return b, true
	}
	if s.done {
		return b, false
	}
	s.done = true
	return frame(b, frameEnd, binary.AppendUvarint(nil, s.count)), false
}

func frame(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(body)))
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
}

// Frame returns the content of a frame of runs.
func Frame(data []byte) (body []byte, err error) {
	kind, body, err := readFrame(bufio.NewReader(bytes.NewReader(data)), nil)
	if err == nil && kind != frameRuns {
		err = fmt.Errorf("%w: frame %q instead of runs", ErrEncoding, kind)
	}
	return body, err
}

// readFrame reads one into buf.
func readFrame(in *bufio.Reader, buf []byte) (kind byte, body []byte, err error) {
	if kind, err = in.ReadByte(); err != nil {
		return 0, nil, fmt.Errorf("%w: it ends too soon", ErrEncoding)
	}
	n, err := binary.ReadUvarint(in)
	if err != nil || n > maxFrame {
		return 0, nil, fmt.Errorf("%w: length of a frame", ErrEncoding)
	}
	// A length may be damaged: memory is taken as there is something to put there.
	for body = buf[:0]; len(body) < int(n)+crc32.Size; {
		part := min(int(n)+crc32.Size-len(body), 1<<20)
		body = slices.Grow(body, part)[:len(body)+part]
		if _, err := io.ReadFull(in, body[len(body)-part:]); err != nil {
			return 0, nil, fmt.Errorf("%w: it ends too soon", ErrEncoding)
		}
	}
	sum := binary.LittleEndian.Uint32(body[n:])
	body = body[:n]
	if crc32.Checksum(body, castagnoli) != sum {
		return 0, nil, fmt.Errorf("%w: checksum of a frame is wrong", ErrEncoding)
	}
	return kind, body, nil
}

// Verify reads a snapshot and checks that it is whole: every frame by its sum, and
// that they are those of a snapshot in their order.
func Verify(stream io.Reader) error {
	in := bufio.NewReaderSize(stream, 1<<16)
	var buf []byte
	for n := 0; ; n++ {
		kind, body, err := readFrame(in, buf)
		switch {
		case err != nil:
			return err
		case (kind == frameState) != (n == 0):
			return fmt.Errorf("%w: frame %q at place %d", ErrEncoding, kind, n)
		case kind == frameEnd:
			return nil
		case n > 0 && kind != frameRuns:
			return fmt.Errorf("%w: unknown frame %q", ErrEncoding, kind)
		}
		buf = body
	}
}

// encodeState returns the first frame of a snapshot: the state without the runs.
func encodeState(m *state) []byte {
	b := []byte{Format}
	b = binary.AppendUvarint(b, m.seq)
	b = binary.AppendVarint(b, m.at)
	b = binary.AppendVarint(b, m.sinceBoot)
	b = appendBytes(b, m.boot)
	b = binary.AppendUvarint(b, uint64(len(m.defs)))
	for h, d := range m.defs {
		b = binary.AppendVarint(b, m.used[h])
		b = appendBytes(b, d.text)
	}
	b = binary.AppendUvarint(b, uint64(len(m.workflows)))
	for name, w := range m.workflows {
		b = appendBytes(b, name)
		for _, n := range w.Totals.list() {
			b = binary.AppendUvarint(b, n)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(m.schedules)))
	for name, s := range m.schedules {
		b = appendBytes(b, name)
		b = binary.AppendVarint(b, s.Due)
		b = appendBytes(b, s.Data)
	}
	b = binary.AppendUvarint(b, uint64(len(m.ended)))
	for _, e := range m.ended {
		k := m.keys[e.key]
		b = append(b, k.id[:]...)
		b = appendBytes(b, k.of.Name)
		b = binary.AppendVarint(b, e.at)
		b = appendBytes(b, e.key)
	}
	return b
}
