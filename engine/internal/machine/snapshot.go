package machine

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/tideover/tideover/engine/internal/codec"
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
		err = fmt.Errorf("%w: got a frame of kind %q; want %q", ErrEncoding, kind, frameRuns)
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
	b = codec.AppendBytes(b, m.boot)
	b = binary.AppendUvarint(b, uint64(len(m.defs)))
	for h, d := range m.defs {
		b = binary.AppendVarint(b, m.used[h])
		b = codec.AppendBytes(b, d.text)
	}
	b = binary.AppendUvarint(b, uint64(len(m.workflows)))
	for name, w := range m.workflows {
		b = codec.AppendBytes(b, name)
		for _, n := range w.Totals.fields() {
			b = binary.AppendUvarint(b, *n)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(m.schedules)))
	for name, s := range m.schedules {
		b = codec.AppendBytes(b, name)
		b = binary.AppendVarint(b, s.Due)
		b = codec.AppendBytes(b, s.Data)
	}
	b = binary.AppendUvarint(b, uint64(len(m.ended)))
	for _, e := range m.ended {
		k := m.keys[e.key]
		b = append(b, k.id[:]...)
		b = codec.AppendBytes(b, k.of.Name)
		b = binary.AppendVarint(b, e.at)
		b = codec.AppendBytes(b, e.key)
	}
	return b
}

// Restore returns the state that a snapshot has. The log from the entry after Seq on
// makes it complete.
func Restore(stream io.Reader) (*Machine, error) { return restore(stream, 0, false) }

// RestoreCold is Restore, and leaves the runs that can be cold at the time in their
// frames. The numbers of frames begin at 0.
func RestoreCold(stream io.Reader, now int64) (*Machine, error) { return restore(stream, now, true) }

func restore(stream io.Reader, now int64, cold bool) (*Machine, error) {
	in := bufio.NewReaderSize(stream, 1<<16)
	m := New()
	kind, body, err := readFrame(in, nil)
	switch {
	case err != nil:
		return nil, err
	case kind != frameState:
		return nil, fmt.Errorf("%w: no state at the beginning", ErrEncoding)
	}
	if err := decodeState(m.state, body); err != nil {
		return nil, err
	}
	var count uint64
	buf := body
	for n := uint32(1); ; n++ {
		kind, body, err := readFrame(in, buf)
		if err != nil {
			return nil, err
		}
		buf = body
		r := codec.Reader{Data: body}
		if kind == frameEnd {
			if n := r.Uvarint(); r.Err != nil || n != count {
				return nil, fmt.Errorf("%w: %d runs instead of %d", ErrEncoding, count, n)
			}
			break
		}
		if kind != frameRuns {
			return nil, fmt.Errorf("%w: a snapshot has a frame of kind %q; want %q or %q", ErrEncoding, kind, frameRuns, frameEnd)
		}
		for len(r.Data) > 0 && r.Err == nil {
			at := uint32(len(body) - len(r.Data))
			run, err := m.parseRun(&r)
			if err != nil {
				return nil, err
			}
			if cold && chillable(run, now) {
				chill(run, n, at)
			} else {
				copyParts(run)
			}
			if _, twice := m.runs[run.ID]; twice {
				return nil, fmt.Errorf("%w: run %s is there twice", ErrEncoding, run.ID)
			}
			m.install(run)
			count++
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	slices.SortFunc(m.ended, func(a, b expiry) int { return cmp.Compare(a.at, b.at) })
	return m, nil
}

// decodeState reads the first frame of a snapshot, which has the state without the runs.
func decodeState(m *state, body []byte) error {
	if len(body) == 0 || body[0] != Format {
		return fmt.Errorf("%w: a snapshot that is not of format %d", ErrFormat, Format)
	}
	r := codec.Reader{Data: body[1:]}
	m.seq = r.Uvarint()
	m.at = r.Varint()
	m.sinceBoot = r.Varint()
	m.boot = string(r.Bytes())
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		used := r.Varint()
		d, err := ParseDefinition(r.Bytes())
		if err != nil {
			return errors.Join(r.Err, err)
		}
		m.define(d)
		if used != 0 {
			m.used[d.hash] = used
		}
	}
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		t := &m.workflow(string(r.Bytes())).Totals
		for _, n := range t.fields() {
			*n = r.Uvarint()
		}
	}
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		s := &Schedule{Name: string(r.Bytes()), Due: r.Varint()}
		s.Data = append([]byte{}, r.Bytes()...)
		m.schedules[s.Name] = s
	}
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		id, name, at := ID(r.Array()), string(r.Bytes()), r.Varint()
		key := string(r.Bytes())
		m.addExpired(expiry{key, at}, id, m.workflow(name))
	}
	return r.Err
}

// An archive is a stream of frames with finished runs.

// AppendArchive adds a frame with encoded runs to b.
func AppendArchive(b []byte, runs []byte) []byte { return frame(b, frameRuns, runs) }

// ReadArchive calls yield with each run of a stream of frames.
func (d *runDecoder) ReadArchive(stream io.Reader, yield func(*Run) error) error {
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
			return fmt.Errorf("%w: an archive has a frame of kind %q; want only %q", ErrEncoding, kind, frameRuns)
		}
		buf = body
		for r := (codec.Reader{Data: body}); len(r.Data) > 0; {
			run, err := d.readRun(&r)
			if err != nil {
				return err
			}
			if err := yield(run); err != nil {
				return err
			}
		}
	}
}
