package view

import (
	"encoding/binary"
	"time"

	"github.com/tideover/tideover/engine/internal/codec"
)

// The table is ordered by place: the millisecond of creation, and then one of
// 1024 slots in it. The slot is drawn from the random part of the id, so the
// place of most runs follows from their id alone; that is what saves an index by
// id. A run whose slot is taken, or whose id is no ULID of about its Created, is
// put aside: at the next free place, which the table aside remembers. Of two that
// want one slot the first gets it, so a view that is made again may have them the
// other way round: a list that is gone on with there can have one of them twice and
// the other not at all. There must be many in one millisecond for that.
//
// The epoch is recent because SQLite stores small numbers in fewer bytes.
const (
	slotBits = 10
	epoch    = 1767225600000 // 2026-01-01 in milliseconds
	maxMilli = 1 << 51       // far beyond any year we can print
)

// Every place is between these.
const (
	minPlace = -1 << 62
	maxPlace = 1 << 62
)

// placeAt returns the first place of a millisecond.
func placeAt(milli int64) int64 {
	return min(max(milli-epoch, -maxMilli), maxMilli) << slotBits
}

// milliAt is the inverse of placeAt for every place in the millisecond.
func milliAt(place int64) int64 { return place>>slotBits + epoch }

func placeOf(t time.Time) int64 { return placeAt(t.UnixMilli()) }

// ulid is a decoded id: 48 bits of time in milliseconds and 80 random bits.
type ulid struct {
	milli int64
	rest  [10]byte
}

// parseULID decodes an id, or reports that it is none.
func parseULID(id string) (u ulid, ok bool) {
	b, ok := codec.ParseID(id)
	return ulid{int64(binary.BigEndian.Uint64(b[:8]) >> 16), [10]byte(b[6:])}, ok
}

// String encodes the id.
func (u ulid) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(u.milli)<<16)
	copy(b[6:], u.rest[:])
	return codec.FormatID(b)
}

// home returns the place that follows from the id. The random bits are mixed, as
// a generator may count up their end within a millisecond.
func (u ulid) home() int64 {
	head := uint64(binary.BigEndian.Uint16(u.rest[:2]))
	h := (binary.BigEndian.Uint64(u.rest[2:]) ^ head<<32) * 0x9E3779B97F4A7C15
	return placeAt(u.milli) | int64(h>>(64-slotBits))
}

// idAt returns the id that a row keeps: of a run at home only the random part,
// as its place has the rest.
func idAt(place int64, stored []byte) string {
	switch {
	case len(stored) == 10:
		return ulid{milliAt(place), [10]byte(stored)}.String()
	case len(stored) > 1 && stored[0] == longMark:
		return string(stored[2:])
	default:
		return string(stored[min(1, len(stored)):])
	}
}

// Marks of ids that are kept whole. The second makes one byte more of an id that
// would be as long as a random part.
const (
	mark     = 'x'
	longMark = 'y'
)

// asideID is how a row keeps the id of a run that is not at home.
func asideID(id string) []byte {
	b := append(make([]byte, 0, len(id)+2), mark)
	if len(id) == 9 {
		b = append(b[:0], longMark, longMark)
	}
	return append(b, id...)
}
