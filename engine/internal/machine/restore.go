package machine

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

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
		r := reader{data: body}
		if kind == frameEnd {
			if n := r.uvarint(); r.err != nil || n != count {
				return nil, fmt.Errorf("%w: %d runs instead of %d", ErrEncoding, count, n)
			}
			break
		}
		if kind != frameRuns {
			return nil, fmt.Errorf("%w: a snapshot has a frame of kind %q; want %q or %q", ErrEncoding, kind, frameRuns, frameEnd)
		}
		for len(r.data) > 0 && r.err == nil {
			at := uint32(len(body) - len(r.data))
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
		if r.err != nil {
			return nil, r.err
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
		m.addExpired(expiry{key, at}, id, m.workflow(name))
	}
	return r.err
}
