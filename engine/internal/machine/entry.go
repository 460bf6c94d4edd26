package machine

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Format is the version of the stored formats. A log or a snapshot of a
// newer one is refused.
const Format = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry gathers the records of one append to the log.
type Entry struct {
	base int64
	data []byte
}

// Reset begins an entry at the time of the wall clock. The elapsed time since the boot of
// the computer shows whether the wall clock was set.
func (e *Entry) Reset(at, sinceBoot int64) {
	e.base = at
	e.data = append(e.data[:0], Format)
	e.data = binary.AppendVarint(e.data, at)
	e.data = binary.AppendVarint(e.data, sinceBoot)
}

// Add adds a record.
func (e *Entry) Add(r *Record) { e.data = r.append(e.data, e.base) }

// Size returns the size of the entry that Bytes would return.
func (e *Entry) Size() int { return len(e.data) + crc32.Size }

// Bytes ends the entry and returns it. It is valid until Reset.
func (e *Entry) Bytes() []byte {
	e.data = binary.LittleEndian.AppendUint32(e.data, crc32.Checksum(e.data, castagnoli))
	return e.data
}

// Header is the times of an entry.
type Header struct {
	At        int64
	SinceBoot int64
}

// ReadHeader returns the times of an entry.
func ReadHeader(data []byte) (h Header, err error) {
	data, err = checked(data, "entry")
	if err != nil {
		return h, err
	}
	in := reader{data: data[1:]}
	h.At = in.varint()
	h.SinceBoot = in.varint()
	return h, in.err
}

// ReadEntry calls apply with each record of an entry. The bytes of a record are part of
// the data.
func ReadEntry(data []byte, apply func(*Record) error) (h Header, err error) {
	data, err = checked(data, "entry")
	if err != nil {
		return h, err
	}
	in := reader{data: data[1:]}
	h.At = in.varint()
	h.SinceBoot = in.varint()
	var r Record
	for len(in.data) > 0 {
		r.read(&in, h.At)
		if in.err != nil {
			break
		}
		if err := apply(&r); err != nil {
			return h, err
		}
	}
	return h, in.err
}

// checked returns the data without its sum, if that is right and the format is
// one that this version knows.
func checked(data []byte, what string) ([]byte, error) {
	if len(data) < crc32.Size+1 {
		return nil, fmt.Errorf("%w: %s of %d bytes", ErrEncoding, what, len(data))
	}
	body, sum := data[:len(data)-crc32.Size], binary.LittleEndian.Uint32(data[len(data)-crc32.Size:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum of the %s is wrong", ErrEncoding, what)
	}
	if body[0] != Format {
		return nil, fmt.Errorf("%w: %s has format %d, this version knows %d", ErrFormat, what, body[0], Format)
	}
	return body, nil
}
