package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tideover/tideover/engine/internal/codec"
)

// ErrEncoding says that stored bytes are not in the format of this package.
var ErrEncoding = codec.ErrEncoding

// ErrFormat says that an entry or a snapshot was stored by a newer version.
var ErrFormat = errors.New("stored by a newer version")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry encodes the records of one append to the log.
type Entry struct {
	base int64
	data []byte
}

// Reset begins a new entry. at is the time of the wall clock, and sinceBoot the time since the
// boot of the machine: both together show later whether the wall clock was set.
func (e *Entry) Reset(at, sinceBoot int64) {
	e.base = at
	e.data = append(e.data[:0], FirstFormat)
	e.data = binary.AppendVarint(e.data, at)
	e.data = binary.AppendVarint(e.data, sinceBoot)
}

// Add adds a record to the entry.
func (e *Entry) Add(r *Record) {
	e.data[0] = max(e.data[0], r.entryFormat())
	e.data = r.append(e.data, e.base)
}

// Size returns the size of the entry that Bytes would return.
func (e *Entry) Size() int { return len(e.data) + crc32.Size }

// Bytes adds the checksum and returns the encoded entry. The bytes are valid until Reset.
func (e *Entry) Bytes() []byte {
	e.data = binary.LittleEndian.AppendUint32(e.data, crc32.Checksum(e.data, castagnoli))
	return e.data
}

// Header has the times of an entry. The two times of two entries together show whether the wall
// clock was set between them.
type Header struct {
	At        int64 // time of the wall clock
	SinceBoot int64 // time since the boot of the computer
}

// CheckEntry returns an error if the checksum of an entry is wrong.
func CheckEntry(data []byte) error {
	if _, err := entryBody(data); !errors.Is(err, ErrFormat) { // a newer format is no damage
		return err
	}
	return nil
}

// ReadEntry calls apply with each record of an entry. The byte slices of a record share the
// memory of data.
func ReadEntry(data []byte, apply func(Header, *Record) error) (h Header, err error) {
	data, err = entryBody(data)
	if err != nil {
		return h, err
	}
	in := codec.Reader{Data: data[1:]}
	h = Header{At: in.Varint(), SinceBoot: in.Varint()}
	var r Record
	for len(in.Data) > 0 {
		r.read(&in, h.At)
		if in.Err != nil {
			break
		}
		if err := apply(h, &r); err != nil {
			return h, err
		}
	}
	return h, in.Err
}

// entryBody returns the data of an entry without its checksum. It fails if the checksum is
// wrong or this version does not know the format.
func entryBody(data []byte) ([]byte, error) {
	if len(data) < crc32.Size+1 {
		return nil, fmt.Errorf("%w: entry of %d bytes", ErrEncoding, len(data))
	}
	body, sum := data[:len(data)-crc32.Size], binary.LittleEndian.Uint32(data[len(data)-crc32.Size:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum of the entry is wrong", ErrEncoding)
	}
	if body[0] < FirstFormat || body[0] > Format {
		return nil, fmt.Errorf("%w: entry has format %d, this version knows formats up to %d", ErrFormat, body[0], Format)
	}
	return body, nil
}
