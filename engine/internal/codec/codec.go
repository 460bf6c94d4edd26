// Package codec has the common parts of the stored formats of runs: sequences of numbers and
// byte strings, and the text form of ids.
package codec

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrEncoding says that stored bytes can't be decoded.
var ErrEncoding = errors.New("stored record is not readable")

// Reader reads values that were written by AppendBytes and the append functions of
// encoding/binary. After the first value that can't be read, all further reads fail too and
// return zero values. So the caller needs to check Err only once, at the end.
type Reader struct {
	Data []byte // the rest to read
	Err  error  // ErrEncoding after a failed read
}

// Fail makes this and all further reads fail.
func (r *Reader) Fail() { r.Err, r.Data = ErrEncoding, nil }

// skip skips a number that took n bytes. It fails if n is not positive: then the data had no
// valid number.
func (r *Reader) skip(n int) {
	if n <= 0 {
		r.Fail()
		return
	}
	r.Data = r.Data[n:]
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 {
	if len(r.Data) > 0 && r.Data[0] < 0x80 { // most numbers are small
		v := r.Data[0]
		r.Data = r.Data[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.Data)
	r.skip(n)
	return v
}

// CutNumbers returns b without the n numbers at its beginning; nil if it has fewer.
func CutNumbers(b []byte, n int) []byte {
	for i, c := range b {
		if c < 0x80 {
			if n--; n == 0 {
				return b[i+1:]
			}
		}
	}
	return nil
}

// CutBytes returns the byte string at the beginning of b, and the rest; nil if it is not complete.
func CutBytes(b []byte) (v, rest []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	size, n := uint64(b[0]), 1
	if size >= 0x80 {
		size, n = binary.Uvarint(b)
	}
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil
	}
	b = b[n:]
	return b[:size:size], b[size:]
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Data)
	r.skip(n)
	return v
}

// Number reads an int from 0 to math.MaxInt32.
func (r *Reader) Number() int {
	v := r.Uvarint()
	if v > math.MaxInt32 {
		r.Fail()
		return 0
	}
	return int(v)
}

// take reads n bytes. It returns nil if there are fewer.
func (r *Reader) take(n uint64) []byte {
	if n > uint64(len(r.Data)) {
		r.Fail()
		return nil
	}
	b := r.Data[:n:n]
	r.Data = r.Data[n:]
	return b
}

// Bytes reads a byte string. The result shares the memory of Data.
func (r *Reader) Bytes() []byte { return r.take(r.Uvarint()) }

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// Array reads 16 bytes: an id or a hash.
func (r *Reader) Array() (a [16]byte) {
	copy(a[:], r.take(16))
	return a
}

// AppendBytes appends the length of v and v to b.
func AppendBytes[T ~[]byte | ~string](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// idLen is the length of an id's text.
const idLen = 26

// alphabet is Crockford's base 32: it has no letters that look like digits.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// FormatID returns the text form of an id.
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

// ParseID parses the text form of an id. ok is false if the text is not an id.
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

// digits maps a character to its value, or to -1 if it is not in the alphabet. Upper case is not:
// each id must have only one text form.
var digits = func() (d [256]int8) {
	for i := range d {
		d[i] = -1
	}
	for i := range len(alphabet) {
		d[alphabet[i]] = int8(i)
	}
	return d
}()
