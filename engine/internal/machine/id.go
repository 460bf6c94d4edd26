package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/tideover/tideover/engine/internal/codec"
)

// ID is the id of a run. It begins with the time of its creation, so that ids sort by age. The
// zero value means no run.
type ID [16]byte

// NewID returns an ID for a time in Unix nanoseconds, with random bits from hi and lo.
func NewID(at int64, hi, lo uint64) (id ID) {
	binary.BigEndian.PutUint64(id[:8], uint64(at/1e6)<<16|hi&0xffff)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id
}

// IsZero reports whether the ID is zero, which means no run.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the text of the ID; "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return codec.FormatID(id)
}

// ParseID parses the text of an ID.
func ParseID(text string) (ID, error) {
	id, ok := codec.ParseID(text)
	if !ok || ID(id).IsZero() {
		return ID{}, fmt.Errorf("not the id of a run: %q", text)
	}
	return id, nil
}

// Slots is the number of slots. Each run has a slot, which its id contains. In a cluster of n
// shards the runs of a slot are in the shard slot % n. So a run is found by its id or its key
// without asking all shards.
const Slots = 1 << 16

// Slot returns the slot that the id contains.
func (id ID) Slot() int { return int(binary.BigEndian.Uint16(id[14:])) }

// In returns the id with another slot.
func (id ID) In(slot int) ID {
	binary.BigEndian.PutUint16(id[14:], uint16(slot))
	return id
}

// KeySlot returns the slot of a run that is started with the key.
func KeySlot(key string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	sum := h.Sum64()
	return int((sum ^ sum>>16 ^ sum>>32 ^ sum>>48) % Slots)
}

// Hash is the SHA-256 hash of a stored definition, shortened. It identifies the definition.
type Hash [16]byte

func hashOf(data []byte) Hash {
	sum := sha256.Sum256(data)
	return Hash(sum[:len(Hash{})])
}
