package memlog

import (
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// shard is one log with its blobs.
type shard struct {
	first   uint64 // sequence of entries[0]
	entries []journal.Entry
	bytes   uint64 // of all entries
	blobs   map[string]blob
	epoch   uint64 // of the latest lease
	owner   *lease // nil if there is none
}

type blob struct {
	data []byte
	time time.Time
}

func newShard() *shard { return &shard{first: 1, blobs: map[string]blob{}} }

func (s *shard) last() uint64 { return s.first + uint64(len(s.entries)) - 1 }

// append records an entry, unless that has happened. It keeps the data.
func (s *shard) append(epoch, expected uint64, id journal.ID, data []byte) (uint64, error) {
	if n := len(s.entries); n > 0 && s.last() == expected+1 && s.entries[n-1].ID == id && s.entries[n-1].Epoch == epoch {
		return expected + 1, nil
	}
	if s.last() != expected {
		return 0, fmt.Errorf("memlog: %w: the last entry is %d, not %d", journal.ErrStale, s.last(), expected)
	}
	s.entries = append(s.entries, journal.Entry{Seq: expected + 1, Epoch: epoch, ID: id, Data: data})
	s.bytes += uint64(len(data))
	return expected + 1, nil
}

// from returns the entries from the sequence on.
func (s *shard) from(seq uint64) ([]journal.Entry, error) {
	switch {
	case seq < s.first:
		return nil, fmt.Errorf("memlog: entry %d was cut off, the first is %d", seq, s.first)
	case seq > s.last():
		return nil, nil
	}
	return slices.Clone(s.entries[seq-s.first:]), nil
}

func (s *shard) truncate(below uint64) {
	below = min(below, s.last()+1)
	if below <= s.first {
		return
	}
	for _, e := range s.entries[:below-s.first] {
		s.bytes -= uint64(len(e.Data))
	}
	s.entries = slices.Clone(s.entries[below-s.first:])
	s.first = below
}
