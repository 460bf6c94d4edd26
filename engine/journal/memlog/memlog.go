// Package memlog keeps a log in memory: for tests, and for work that may be lost.
//
// A [Store] has one shard and one owner, or it is a cluster whose members share
// its shards, all in one process. Members can be killed, frozen and cut off, and
// what they do can be made to go wrong. There is no I/O, and time is all that is
// waited for, so everything works in the bubbles of testing/synctest.
package memlog

import (
	"context"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Store is what a log in memory is kept in. It outlives the logs, so that an
// engine can be closed and opened again. The zero Store is empty. Its fields are
// not changed once it is in use.
type Store struct {
	Shards  int           // how many there are; 0 means 1
	Silence time.Duration // after which a member is taken for dead; 0 means 3 s

	mu      sync.Mutex // guards everything below, and all members and leases
	shards  []*shard
	members []*Member // that have joined and are not taken for dead
	joined  int       // how many ever have
	settled map[string]string
}

// defaultSilence is what a real cluster needs to tell a dead member from a slow one.
const defaultSilence = 3 * time.Second

// Open returns a log that is kept in the store. It is not a member: it does not share the
// store, and keeps its leases until they are released.
func (s *Store) Open() journal.Log { return &log{process: s.newMember("")} }

// log is a process that is not a member.
type log struct{ process *Member }

func (l *log) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	held, err := newLease(ctx, l.process, shard)
	if err != nil {
		return nil, err
	}
	return held, nil
}

func (l *log) Close() error { return l.process.Close() }
