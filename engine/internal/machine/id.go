package machine

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/tideover/tideover/engine/internal/codec"
)

// ID names a run. It begins with the time of its making, so that ids sort by
// age.
type ID [16]byte

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
	return codec.FormatID(id)
}

// ParseID reads the text of an ID.
func ParseID(text string) (ID, error) {
	id, ok := codec.ParseID(text)
	if !ok || ID(id).IsZero() {
		return ID{}, fmt.Errorf("not the id of a run: %q", text)
	}
	return id, nil
}

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
