package machine

import (
	"encoding/binary"
	"hash/fnv"
)

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
