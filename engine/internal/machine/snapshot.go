package machine

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/tideover/tideover/engine/internal/codec"
)

// A snapshot is written while entries are applied. It begins with the state at one entry, without
// the runs. The runs follow, each in the state that it has when it is written, with the number of
// the entry that changed it last. A replay starts after the entry at which the snapshot began,
// and skips for each run the entries that the run in the snapshot includes.
//
// A snapshot is a sequence of frames. A frame has a letter, the length, the content and a
// checksum.
const (
	frameState = 's'     // the state without the runs
	frameRuns  = 'r'     // encoded runs
	frameEnd   = 'e'     // the number of runs
	maxFrame   = 1 << 30 // largest content, in bytes
	fullFrame  = 4 << 20 // a frame with this many bytes gets no further run
)

// Snapshot is a snapshot that is being written.
type Snapshot struct {
	m       *state
	runs    runWriter
	Seq     uint64 // number of the last entry before the snapshot began
	Chilled int    // number of runs that Chill made cold
	state   []byte // encoded state that is not in a frame yet
	done    bool   // the last frame was written

	frames  uint32         // number of frames written
	written []writtenFrame // runs for Chill; one slice of all runs would leave garbage as it grows
}

// Err returns why the snapshot can't be completed; nil if it can.
func (s *Snapshot) Err() error { return s.runs.err }

// Snapshot begins a snapshot. It must be called between two entries, and replaces a snapshot
// that is being written. It encodes the state at once, because further entries may be applied
// before the first call of Next.
func (m *Machine) Snapshot() *Snapshot {
	m.snapshots++
	s := &Snapshot{m: m.state, runs: runWriter{no: m.snapshots, next: len(m.all)}, Seq: m.seq, state: encodeState(m.state)}
	m.snapshot = &s.runs
	return s
}

// Stop ends the snapshot, whether it is complete or not.
func (s *Snapshot) Stop() {
	if s.m.snapshot == &s.runs {
		s.m.snapshot = nil
	}
}

// Next appends the next frame to b, with at most the given number of runs. more is false after
// the last frame. Next may append nothing although more is true.
func (s *Snapshot) Next(b []byte, most int) (out []byte, more bool) {
	if state := s.state; state != nil {
		s.state = nil
		s.frames++
		return frame(b, frameState, state), true
	}
	body, list := s.nextRuns(most)
	if list != nil {
		s.written = append(s.written, writtenFrame{s.frames, list})
	}
	if len(body) > 0 {
		s.frames++
		return frame(b, frameRuns, body), true
	}
	if s.runs.next > 0 {
		return b, true
	}
	if s.done {
		return b, false
	}
	s.done = true
	return frame(b, frameEnd, binary.AppendUvarint(nil, s.runs.count)), false
}

// nextRuns returns the content of the next frame, and which runs are in it beside the removed ones.
func (s *Snapshot) nextRuns(most int) (body []byte, list []written) {
	w := &s.runs
	body = w.removed // frame copies it, so the memory can be used again
	for n := 0; n < most && w.next > 0 && len(body) < fullFrame; n++ {
		// Runs that were added after the beginning are at the end, and are not written. A
		// run that moved to another index may be met twice: r.snap shows that it was
		// written.
		w.next = min(w.next, len(s.m.all)) - 1
		if w.next < 0 {
			w.next = 0
			break
		}
		if r := s.m.all[w.next]; r.snap != w.no {
			r.snap = w.no
			if list == nil {
				list = make([]written, 0, min(most-n, w.next+1))
			}
			at := len(body)
			w.add(&s.m.pageStore, &body, r)
			list = append(list, written{r, r.version, uint32(at), uint32(len(body) - at)})
		}
	}
	w.removed = body[:0]
	return body, list
}

func frame(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(body)))
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
}

// Frame returns the content of an encoded frame with runs. It shares the memory of data.
func Frame(data []byte) (body []byte, err error) {
	in := codec.Reader{Data: data}
	kind, body := in.Byte(), in.Bytes()
	if in.Err != nil || len(in.Data) < crc32.Size {
		return nil, fmt.Errorf("%w: the data ends in the middle of a frame", ErrEncoding)
	}
	return checkFrame(kind, body, in.Data, []byte{frameRuns})
}

// frameReader reads frames from a stream.
type frameReader struct {
	*bufio.Reader
	buf []byte // content of the frame that was read last; its memory is used again
}

func readFrames(stream io.Reader) *frameReader {
	return &frameReader{Reader: bufio.NewReaderSize(stream, 1<<16)}
}

// next reads the next frame, which must be of one of the kinds. Its content is valid until the next call.
func (f *frameReader) next(kinds ...byte) (kind byte, body []byte, err error) {
	if kind, err = f.ReadByte(); err != nil {
		return 0, nil, fmt.Errorf("%w: the data ends before the last frame", ErrEncoding)
	}
	n, err := binary.ReadUvarint(f)
	if err != nil || n > maxFrame {
		return 0, nil, fmt.Errorf("%w: length of a frame is wrong", ErrEncoding)
	}
	// The length may be damaged: allocate memory only as data is read.
	for body = f.buf[:0]; len(body) < int(n)+crc32.Size; {
		part := min(int(n)+crc32.Size-len(body), 1<<20)
		body = slices.Grow(body, part)[:len(body)+part]
		if _, err := io.ReadFull(f, body[len(body)-part:]); err != nil {
			return 0, nil, fmt.Errorf("%w: the data ends in the middle of a frame", ErrEncoding)
		}
	}
	f.buf = body
	body, err = checkFrame(kind, body[:n], body[n:], kinds)
	return kind, body, err
}

// checkFrame returns the content of a frame. It fails if the checksum is wrong, or if the frame is of
// none of the kinds.
func checkFrame(kind byte, body, sum, kinds []byte) ([]byte, error) {
	switch {
	case crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum):
		return nil, fmt.Errorf("%w: checksum of a frame is wrong", ErrEncoding)
	case !slices.Contains(kinds, kind):
		return nil, fmt.Errorf("%w: got a frame of kind %q; want %q", ErrEncoding, kind, kinds)
	}
	return body, nil
}

// Verify reads a snapshot and checks that it is complete: it checks the checksum of every frame
// and the order of the frames. It does not decode the runs.
func Verify(stream io.Reader) error {
	in := readFrames(stream)
	kind, _, err := in.next(frameState)
	for err == nil && kind != frameEnd {
		kind, _, err = in.next(frameRuns, frameEnd)
	}
	return err
}

// encodeState returns the content of the first frame of a snapshot: the state without the runs.
func encodeState(m *state) []byte {
	b := []byte{m.format()}
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
		for _, n := range fieldsOf(&w.Totals) {
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
	if paused := m.pauses(); b[0] >= PauseFormat { // else there are none
		b = binary.AppendUvarint(b, uint64(len(paused)))
		for name, p := range paused {
			b = codec.AppendBytes(b, name)
			b = binary.AppendVarint(b, p.At)
			b = codec.AppendBytes(b, p.By)
		}
	}
	return b
}

// Restore returns the state of a snapshot. The caller then replays the log from the entry after
// Machine.Seq on.
func Restore(stream io.Reader) (*Machine, error) { return RestoreAt(stream, 0, false) }

// RestoreAt is Restore. If cold is true, the snapshot must stay readable: then the input and history of
// a run that has nothing to do soon after now are left in the snapshot. The frame with the state has the
// number 0.
func RestoreAt(stream io.Reader, now int64, cold bool) (*Machine, error) {
	in, m := readFrames(stream), New()
	_, body, err := in.next(frameState)
	if err == nil {
		err = decodeState(m.state, body)
	}
	if err != nil {
		return nil, err
	}
	var count uint64
	var parsed parsedRun
	for n := uint32(1); ; n++ {
		kind, body, err := in.next(frameRuns, frameEnd)
		if err != nil {
			return nil, err
		}
		r := codec.Reader{Data: body}
		if kind == frameEnd {
			if n := r.Uvarint(); r.Err != nil || n != count {
				return nil, fmt.Errorf("%w: the snapshot has %d runs; want %d", ErrEncoding, count, n)
			}
			break
		}
		for len(r.Data) > 0 {
			at := uint32(len(body) - len(r.Data))
			part, err := m.parseAgain(&parsed, &r)
			if err != nil {
				return nil, err
			}
			run := new(Run)
			*run = *part
			run.Steps = slices.Clone(part.Steps)
			if cold && chillable(run, now) {
				m.chill(run, place{n, at, uint32(len(body)-len(r.Data)) - at})
			} else {
				copyParts(run)
			}
			if _, twice := m.Run(run.ID); twice {
				return nil, fmt.Errorf("%w: the snapshot has run %s twice", ErrEncoding, run.ID)
			}
			m.install(run)
			count++
		}
	}
	slices.SortFunc(m.ended, func(a, b expiry) int { return cmp.Compare(a.at, b.at) })
	return m, nil
}

// decodeState decodes the content of the first frame of a snapshot: the state without the runs.
func decodeState(m *state, body []byte) error {
	if len(body) == 0 || body[0] < FirstFormat || body[0] > Format {
		return fmt.Errorf("%w: the format of a snapshot is none of %d to %d", ErrFormat, FirstFormat, Format)
	}
	r := codec.Reader{Data: body[1:]}
	m.seq = r.Uvarint()
	m.at = r.Varint()
	m.sinceBoot = r.Varint()
	m.boot = string(r.Bytes())
	if err := decodeDefinitions(&m.definitionSet, &r); err != nil {
		return err
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
	m.adopted = body[0] >= ChildFormat
	if body[0] >= PauseFormat {
		for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
			m.workflow(string(r.Bytes())).setPause(&Pause{At: r.Varint(), By: string(r.Bytes())})
		}
	}
	return r.Err
}

// decodeDefinitions decodes the definitions, and the totals of the workflows.
func decodeDefinitions(s *definitionSet, r *codec.Reader) error {
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		used := r.Varint()
		d, err := ParseDefinition(r.Bytes())
		if err != nil {
			return errors.Join(r.Err, err)
		}
		s.define(d)
		if used != 0 {
			s.used[d.hash] = used
		}
	}
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		for _, n := range fieldsOf(&s.workflow(string(r.Bytes())).Totals) {
			*n = r.Uvarint()
		}
	}
	return nil
}

// An archive is a stream of frames with finished runs.

// AppendArchive appends a frame with encoded runs to b.
func AppendArchive(b []byte, runs []byte) []byte { return frame(b, frameRuns, runs) }

// ReadArchive calls yield with each run of an archive.
func (d *runDecoder) ReadArchive(stream io.Reader, yield func(*Run) error) error {
	in := readFrames(stream)
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		_, body, err := in.next(frameRuns)
		if err != nil {
			return err
		}
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

// Chill makes runs cold that the snapshot has in their current state: it removes their input,
// history and outputs from memory. Runs that are cold already refer to this snapshot from now on.
// Each call handles the next runs, about the given number; more is false after the last run.
// base is added to the numbers of the frames, to distinguish them from those of another snapshot.
func (s *Snapshot) Chill(now int64, base uint32, most int) (more bool) {
	for n := 0; n < most && len(s.written) > 0; s.written = s.written[1:] {
		f := &s.written[0]
		for i := range f.runs {
			s.chill(&f.runs[i], now, base+f.number)
		}
		n += len(f.runs)
		f.runs = nil
	}
	return len(s.written) > 0
}

// chill is Chill for one run of a frame.
func (s *Snapshot) chill(w *written, now int64, frame uint32) {
	r := w.run
	if s.m.byID(r.ID) != r {
		return
	}
	warm := !r.IsCold()
	if !warm || r.version == w.version && chillable(r, now) {
		s.m.chill(r, place{frame, w.at, w.size})
		if warm {
			s.Chilled++
		}
	}
}

// writtenFrame has the runs of a frame that was written to a snapshot.
type writtenFrame struct {
	number uint32
	runs   []written
}

type written struct {
	run      *Run
	version  uint64 // version of the run when it was written
	at, size uint32 // as in place
}
