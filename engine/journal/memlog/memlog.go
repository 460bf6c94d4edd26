// Package memlog keeps a log in memory: for tests, and for work that may be lost.
//
// A [Store] has one shard and one owner, or it is a cluster whose members share
// its shards, all in one process. Members can be killed, frozen and cut off, and
// their operations can be made to fail. There is no I/O, and all waits are for time
// or for other goroutines, so everything works in the bubbles of testing/synctest.
package memlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Store holds the entries and blobs of logs in memory. It outlives the logs, so that
// an engine can be closed and opened again. The zero Store is empty. Do not change its
// fields once it is in use.
type Store struct {
	Shards  int           // how many there are; 0 means 1
	Silence time.Duration // a member that is silent for this time counts as dead; 0 means 3 s

	mu      sync.Mutex // guards everything below, and all members and leases
	shards  []*shard
	members []*Member // members that have joined, have not left and do not count as dead
	joined  int       // number of joins so far
	settled map[string]string
	made    time.Time // when the store was used first
}

// defaultSilence is the default of Store.Silence: about the time that a real cluster
// needs to distinguish a dead member from a slow one.
const defaultSilence = 3 * time.Second

// Open returns a log with the contents of the store. It is not a member of the cluster:
// it keeps its leases until they are released.
func (s *Store) Open() journal.Log { return &log{process: s.newMember("")} }

// log is a process that is not a member.
type log struct{ process *Member }

func (l *log) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	return l.process.Lease(ctx, shard)
}

func (l *log) Close() error { return l.process.Close() }

// shard is one log with its blobs.
type shard struct {
	first   uint64 // sequence of entries[0]
	entries []journal.Entry
	bytes   uint64 // size of all entries
	blobs   map[string]blob
	epoch   uint64 // epoch of the latest lease
	owner   *lease // nil if there is none
}

type blob struct {
	data []byte
	time time.Time
}

// shard returns a shard, or an error if there is no such shard.
func (s *Store) shard(number int) (*shard, error) {
	if number < 0 || number >= len(s.shards) {
		return nil, fmt.Errorf("memlog: there is no shard %d", number)
	}
	return s.shards[number], nil
}

func (s *shard) last() uint64 { return s.first + uint64(len(s.entries)) - 1 }

// bounds returns the sequences of the first and the last entry.
func (s *shard) bounds() ([2]uint64, error) { return [2]uint64{s.first, s.last()}, nil }

// append records an entry, unless the last entry has the same id and epoch already. It
// keeps the data.
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
		return nil, fmt.Errorf("memlog: entry %d was truncated: the first entry is %d", seq, s.first)
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

// peek is a lease that only reads: its epoch is 0, and another member may own the shard. It hides the methods
// that change something.
type peek struct{ journal.Reader }

// Peek implements [journal.Cluster].
func (m *Member) Peek(ctx context.Context, number int) (journal.Reader, error) {
	_, unlock, err := m.begin(ctx, Operation{Name: "peek", Shard: number})
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := m.store.shard(number)
	if err != nil {
		return nil, err
	}
	return peek{&lease{member: m, number: number, shard: s}}, nil
}
