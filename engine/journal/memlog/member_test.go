package memlog_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/journaltest"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// stores finds the store that belongs to a folder of a suite.
type stores struct {
	mu     sync.Mutex
	byName map[string]*memlog.Store
}

func (s *stores) at(dir string, shards int) *memlog.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName == nil {
		s.byName = map[string]*memlog.Store{}
	}
	if s.byName[dir] == nil {
		s.byName[dir] = &memlog.Store{Shards: shards, Silence: 50 * time.Millisecond}
	}
	return s.byName[dir]
}

func TestClusterConformance(t *testing.T) {
	var all stores
	var joined atomic.Int32
	journaltest.RunCluster(t, func(t *testing.T, dir string, shards int) journaltest.Process {
		t.Helper()
		return all.at(dir, shards).Join(fmt.Sprintf("process %d", 999-joined.Add(1))) // not in the order of joining
	})
}

func TestLogOfAMemberConformance(t *testing.T) {
	var all stores
	journaltest.Run(t, func(t *testing.T, dir string) journal.Log {
		t.Helper()
		return all.at(dir, 3).Join("process")
	})
}

func TestOnlyTheFirstReplyCounts(t *testing.T) {
	m := join(t, &memlog.Store{}, "a")[0]
	err := lease(t, m, 0).Serve(func(_ []byte, reply func([]byte)) {
		reply([]byte("first"))
		reply([]byte("second"))
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := m.Call(t.Context(), 0, nil); err != nil || string(got) != "first" {
			t.Errorf("Call = %q, %v; want the first reply", got, err)
		}
	}
}

func TestAnswerBeforeTheReleaseCounts(t *testing.T) {
	m := join(t, &memlog.Store{}, "a")[0]
	for range 100 {
		l := lease(t, m, 0)
		err := l.Serve(func(request []byte, reply func([]byte)) {
			reply(request)
			l.Release()
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Call(t.Context(), 0, []byte("x")); err != nil || string(got) != "x" {
			t.Fatalf("Call = %q, %v; want the answer that was given before the release", got, err)
		}
	}
}

func TestServingTwiceIsRefused(t *testing.T) {
	m := join(t, &memlog.Store{}, "a")[0]
	l := lease(t, m, 0)
	if err := errors.Join(m.Serve(echo), l.Serve(echo)); err != nil {
		t.Fatal(err)
	}
	if m.Serve(echo) == nil {
		t.Error("Serve of a member that is served succeeds")
	}
	if l.Serve(echo) == nil {
		t.Error("Serve of a shard that is served succeeds")
	}
}

func TestShardNumbersAreChecked(t *testing.T) {
	store := &memlog.Store{Shards: 3}
	m := join(t, store, "a")[0]
	log := store.Open()
	defer log.Close()
	for _, shard := range []int{-1, 3, 1 << 40} {
		if _, err := m.Lease(t.Context(), shard); err == nil {
			t.Errorf("Lease(%d) by a member succeeds", shard)
		}
		if _, err := log.Lease(t.Context(), shard); err == nil {
			t.Errorf("Lease(%d) succeeds", shard)
		}
		if _, err := m.Call(t.Context(), shard, nil); err == nil {
			t.Errorf("Call(%d) succeeds", shard)
		}
	}
	if _, err := log.Lease(t.Context(), 2); err != nil {
		t.Errorf("Lease(2) = %v", err)
	}
	wantLocked(t, m, 2)
}
