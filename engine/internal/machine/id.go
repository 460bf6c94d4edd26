package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// ID names a run. It begins with the time of its making, so that ids sort by
// age.
type ID [16]byte

// IDLen is the length of an ID's text.
const IDLen = 26

// alphabet has no letters that are taken for digits (Crockford's base 32).
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns an ID made at the time, from two random numbers.
func NewID(at int64, hi, lo uint64) (id ID) {
	binary.BigEndian.PutUint64(id[:8], uint64(at/1e6)<<16|hi&0xffff)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id
}

// IsZero reports whether there is no ID.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the text of the ID; that of no ID is empty.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	var text [IDLen]byte
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	for i := IDLen - 1; i >= 0; i-- {
		text[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(text[:])
}

var errID = errors.New("not the id of a run")

// ParseID reads the text of an ID.
func ParseID(text string) (id ID, err error) {
	if len(text) != IDLen || text[0] > '7' {
		return ID{}, fmt.Errorf("%w: %q", errID, text)
	}
	var hi, lo uint64
	for i := range IDLen {
		digit := digits[text[i]]
		if digit < 0 {
			return ID{}, fmt.Errorf("%w: %q", errID, text)
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(digit)
	}
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	if id.IsZero() {
		return ID{}, fmt.Errorf("%w: %q", errID, text)
	}
	return id, nil
}

var digits = func() (d [256]int8) {
	for i := range d {
		d[i] = -1
	}
	for i := range len(alphabet) {
		d[alphabet[i]] = int8(i)
	}
	return d
}()

// Slots is how many places a run can belong to. A log of n shards keeps the runs
// of a slot in the shard slot % n, and so they are found by their id, or by their
// key, without asking all.
const Slots = 1 << 16

// Slot returns the slot of the run with the id.
func (id ID) Slot() int { return int(binary.BigEndian.Uint16(id[14:])) }

// In returns the id with another slot.
func (id ID) In(slot int) ID {
	binary.BigEndian.PutUint16(id[14:], uint16(slot))
	return id
}

// KeySlot returns the slot of runs that are started with the key.
func KeySlot(key string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	sum := h.Sum64()
	return int((sum ^ sum>>16 ^ sum>>32 ^ sum>>48) % Slots)
}
