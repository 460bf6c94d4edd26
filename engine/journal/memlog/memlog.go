// Package memlog keeps a log in memory: for tests, and for work that may be lost.
//
// A [Store] has one shard and one owner, or it is a cluster whose members share
// its shards, all in one process. Members can be killed, frozen and cut off, and
// their operations can be made to fail. There is no I/O, and all waits are for time
// or for other goroutines, so everything works in the bubbles of testing/synctest.
package memlog

import (
	"context"
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
	held, err := newLease(ctx, l.process, shard)
	if err != nil {
		return nil, err
	}
	return held, nil
}

func (l *log) Close() error { return l.process.Close() }
