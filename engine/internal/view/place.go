package view

import (
	"encoding/binary"
	"time"

	"github.com/tideover/tideover/engine/internal/codec"
)

// The table is ordered by place: the millisecond of creation, and then one of 1024 slots in it.
// The slot is computed from the random part of the id. So the place of most runs, their home,
// follows from their id alone, and no index by id is needed.
//
// A run is put aside if its home is taken, or if its id is not a ULID with about the time of
// Created. Then it gets the next free place, and the table aside has its id and place.
//
// Of two runs with the same home, the first one that is written gets it. In a rebuilt view it may
// be the other one. Then a list that continues in the rebuilt view may repeat one of the two and
// miss the other. This is rare: it needs many runs in one millisecond.
//
// The epoch is recent because SQLite stores small numbers in fewer bytes.
const (
	slotBits = 10
	epoch    = 1767225600000 // 2026-01-01 in Unix milliseconds
	maxMilli = 1 << 51       // limit of the milliseconds since the epoch: later than any year that can be printed
)

// All places are between these two.
const (
	minPlace = -1 << 62
	maxPlace = 1 << 62
)

// placeAt returns the first place of a millisecond.
func placeAt(milli int64) int64 {
	return min(max(milli-epoch, -maxMilli), maxMilli) << slotBits
}

// milliAt returns the millisecond of a place.
func milliAt(place int64) int64 { return place>>slotBits + epoch }

func placeOf(t time.Time) int64 { return placeAt(t.UnixMilli()) }

// ulid is a decoded id: 48 bits of time in milliseconds and 80 random bits.
type ulid struct {
	milli int64
	rest  [10]byte
}

// parseULID decodes an id. ok is false if the id is not a ULID.
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

// home returns the place that follows from the id. It hashes the random bits, because some
// generators only increment them within a millisecond.
func (u ulid) home() int64 {
	head := uint64(binary.BigEndian.Uint16(u.rest[:2]))
	h := (binary.BigEndian.Uint64(u.rest[2:]) ^ head<<32) * 0x9E3779B97F4A7C15
	return placeAt(u.milli) | int64(h>>(64-slotBits))
}

// idAt returns the id of the row at a place. The row of a run at home stores only the random part
// of the id, because the place has the time.
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

// The first byte of an id that is stored as a whole. longMark is written twice, for an id of nine
// bytes: with one mark it would be as long as a random part.
const (
	mark     = 'x'
	longMark = 'y'
)

// asideID returns the id of a run that is not at home, as its row stores it.
func asideID(id string) []byte {
	b := append(make([]byte, 0, len(id)+2), mark)
	if len(id) == 9 {
		b = append(b[:0], longMark, longMark)
	}
	return append(b, id...)
}
