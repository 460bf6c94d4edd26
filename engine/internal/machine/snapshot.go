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
	"time"
)

// A snapshot is written while the machine goes on. It begins with what is not
// part of a run, as it was at one entry, and goes on with the runs, each as it
// is when its turn comes and with the entry that changed it last. Replay starts
// after the entry of the beginning, and skips for each run what it knows.
//
// It is a sequence of frames: a letter, the length, the content, its sum.
const (
	frameState = 's'
	frameRuns  = 'r'
	frameEnd   = 'e'
	maxFrame   = 1 << 30
	fullFrame  = 4 << 20 // takes no further run
)

// Snapshot is the writing of one.
type Snapshot struct {
	m       *Machine
	Seq     uint64 // the entry it begins at
	Chilled int    // runs that were moved out of memory into it
	no      uint32
	next    int    // the runs from here on are written; it counts down
	state   []byte // not yet in a frame
	left    []byte
	count   uint64
	done    bool
	err     error // of a run that could not be read

	frames  uint32 // written so far
	written []written
}

// Err returns why the snapshot can't be complete.
func (s *Snapshot) Err() error { return s.err }

// Snapshot begins one, between two entries. There is at most one at a time. The
// state is written here and not by the first Next: entries may come between.
func (m *Machine) Snapshot() *Snapshot {
	m.snaps++
	s := &Snapshot{m: m, Seq: m.seq, no: m.snaps, next: len(m.all), state: m.encodeState()}
	m.snapshot = s
	return s
}

// Stop ends the writing, whether it is complete or not.
func (s *Snapshot) Stop() {
	if s.m.snapshot == s {
		s.m.snapshot = nil
	}
}

// leaving writes a run that leaves the memory before its turn.
func (s *Snapshot) leaving(r *Run) {
	if r.snap != s.no && int(r.index) < s.next {
		r.snap = s.no
		s.add(&s.left, r)
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
	body := s.left // of which frame makes a copy
	for n := 0; n < most && s.next > 0 && len(body) < fullFrame; n++ {
		// Runs that came after the beginning are at the end, and need no turn. One
		// that was moved by the leaving of another may get two.
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
	s.left = body[:0]
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

// Restore returns the state that a snapshot begins. The log from the entry after
// Seq on makes it complete.
func Restore(stream io.Reader) (*Machine, error) { return restore(stream, 0, false) }

// RestoreCold is Restore, and leaves what can be cold at the time in its frames,
// whose numbers begin at 0.
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
	if err := m.readState(body); err != nil {
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
		r := reader{data: body}
		if kind == frameEnd {
			if n := r.uvarint(); r.err != nil || n != count {
				return nil, fmt.Errorf("%w: %d runs instead of %d", ErrEncoding, count, n)
			}
			break
		}
		if kind != frameRuns {
			return nil, fmt.Errorf("%w: frame %q in a snapshot", ErrEncoding, kind)
		}
		for len(r.data) > 0 && r.err == nil {
			at := uint32(len(body) - len(r.data))
			run, err := m.parseRun(&r)
			if err != nil {
				return nil, err
			}
			if cold && run.chillable(now) {
				run.chill(n, at)
			} else {
				run.own()
			}
			if _, twice := m.runs[run.ID]; twice {
				return nil, fmt.Errorf("%w: run %s is there twice", ErrEncoding, run.ID)
			}
			m.install(run)
			count++
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	slices.SortFunc(m.ended, func(a, b expiry) int { return cmp.Compare(a.at, b.at) })
	return m, nil
}

// install puts a restored run into memory, with its timers.
func (m *Machine) install(r *Run) {
	r.restored = true
	m.add(r)
	for i := range r.Steps {
		s := &r.Steps[i]
		switch s.Status {
		case Running:
			r.Def.Steps[i].queue.Running++
		case Complete:
			r.done++
		case NoHandler:
			m.park(r, i)
		case Waiting:
			if r.waits() {
				m.timers.set(r, int32(i), s.At)
			}
		case Blocked, Exhausted:
		}
	}
	if r.Outcome == Undecided && r.Deadline != 0 {
		m.timers.set(r, deadline, r.Deadline)
	}
	if r.active = r.active && r.begun() && !r.Closed(); r.active {
		r.Def.workflow.Active++
	}
	switch {
	case !r.Finished():
		m.claim(r)
	case r.version > m.seq: // else the state has what is left of its key
		m.retire(r, r.last())
	}
	if r.Finished() {
		r.dirty = true
		m.changed = append(m.changed, r)
	}
	m.show(r)
}

func (m *Machine) encodeState() []byte {
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
		t := &w.Totals
		for _, n := range []uint64{t.Started, t.Succeeded, t.Dead, t.Canceled, t.Attempts, t.Failures, t.Lost} {
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

func (m *Machine) readState(body []byte) error {
	if len(body) == 0 || body[0] != Format {
		return fmt.Errorf("%w: a snapshot that is not of format %d", ErrFormat, Format)
	}
	r := reader{data: body[1:]}
	m.seq = r.uvarint()
	m.at = r.varint()
	m.sinceBoot = r.varint()
	m.boot = string(r.bytes())
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		used := r.varint()
		d, err := ParseDefinition(r.bytes())
		if err != nil {
			return errors.Join(r.err, err)
		}
		m.define(d)
		if used != 0 {
			m.used[d.hash] = used
		}
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		t := &m.workflow(string(r.bytes())).Totals
		for _, p := range []*uint64{&t.Started, &t.Succeeded, &t.Dead, &t.Canceled, &t.Attempts, &t.Failures, &t.Lost} {
			*p = r.uvarint()
		}
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		s := &Schedule{Name: string(r.bytes()), Due: r.varint()}
		s.Data = append([]byte{}, r.bytes()...)
		m.schedules[s.Name] = s
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		id, name, at := ID(r.array()), string(r.bytes()), r.varint()
		key := string(r.bytes())
		m.ended = append(m.ended, expiry{key, at})
		m.keys[key] = keyed{id, m.workflow(name), at}
	}
	return r.err
}

// The flags of a run, and of a step beside its status. The numbers are stored.
const (
	runFailing  = 1
	runHeld     = 2
	runIdle     = 4 // it has no place among those that a limit counts
	runUntil    = 8 // the end of a postponement follows
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
	b = append(b, x.origin[:]...)
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
		x.origin = in.array()
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
