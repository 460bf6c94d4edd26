// Package codec has what the stored formats of runs have in common: numbers and byte strings
// one after the other, and the text of ids.
package codec

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrEncoding says that stored bytes are not in the format of the reader.
var ErrEncoding = errors.New("stored record is not readable")

// Reader reads values that were written by AppendBytes and the append functions of
// encoding/binary. The first one that is missing makes it fail for good; the caller checks
// Err once, at the end.
type Reader struct {
	Data []byte // what is left to read
	Err  error
}

// Fail makes the reader fail.
func (r *Reader) Fail() { r.Err, r.Data = ErrEncoding, nil }

// skip skips a number of n bytes; 0 and less mean that there is none.
func (r *Reader) skip(n int) {
	if n <= 0 {
		r.Fail()
		return
	}
	r.Data = r.Data[n:]
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Data)
	r.skip(n)
	return v
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Data)
	r.skip(n)
	return v
}

// Number reads an int that is not negative.
func (r *Reader) Number() int {
	v := r.Uvarint()
	if v > math.MaxInt32 {
		r.Fail()
		return 0
	}
	return int(v)
}

// Bytes returns a part of the data, not a copy.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.Data)) {
		r.Fail()
		return nil
	}
	b := r.Data[:n:n]
	r.Data = r.Data[n:]
	return b
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if len(r.Data) == 0 {
		r.Fail()
		return 0
	}
	b := r.Data[0]
	r.Data = r.Data[1:]
	return b
}

// Array reads an id or a hash.
func (r *Reader) Array() (a [16]byte) {
	if len(r.Data) < len(a) {
		r.Fail()
		return a
	}
	copy(a[:], r.Data)
	r.Data = r.Data[len(a):]
	return a
}

// AppendBytes writes bytes after their number.
func AppendBytes[T ~[]byte | ~string](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// idLen is the length of the text of an id.
const idLen = 26

// alphabet has no letters that are taken for digits (Crockford's base 32).
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// FormatID returns the text of an id.
func FormatID(id [16]byte) string {
	var text [idLen]byte
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	for i := idLen - 1; i >= 0; i-- {
		text[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(text[:])
}

// ParseID reads the text of an id, or reports that it is none.
func ParseID(text string) (id [16]byte, ok bool) {
	if len(text) != idLen || text[0] > '7' {
		return id, false
	}
	var hi, lo uint64
	for i := range idLen {
		digit := digits[text[i]]
		if digit < 0 {
			return id, false
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(digit)
	}
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id, true
}

// digits maps a character to its value, and all that are not in the alphabet, upper case
// included, to -1: an id must be got back as it was.
var digits = func() (d [256]int8) {
	for i := range d {
		d[i] = -1
	}
	for i := range len(alphabet) {
		d[alphabet[i]] = int8(i)
	}
	return d
}()
