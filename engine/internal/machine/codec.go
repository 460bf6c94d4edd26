package machine

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrEncoding says that stored bytes are not in the format of this package.
var ErrEncoding = errors.New("stored record is not readable")

// reader reads values that the append functions wrote. The first one that is missing
// makes it fail for good; the caller checks err once, at the end.
type reader struct {
	data []byte
	err  error
}

func (r *reader) fail() {
	r.err = ErrEncoding
	r.data = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.data)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.data = r.data[n:]
	return v
}

// number reads an int that is not negative.
func (r *reader) number() int {
	v := r.uvarint()
	if v > math.MaxInt32 {
		r.fail()
		return 0
	}
	return int(v)
}

// bytes returns a part of the data, not a copy.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.data)) {
		r.fail()
		return nil
	}
	b := r.data[:n:n]
	r.data = r.data[n:]
	return b
}

func (r *reader) byte() byte {
	if len(r.data) == 0 {
		r.fail()
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

func (r *reader) array() (a [16]byte) {
	if len(r.data) < len(a) {
		r.fail()
		return a
	}
	copy(a[:], r.data)
	r.data = r.data[len(a):]
	return a
}

func appendBytes[T ~[]byte | ~string](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}
