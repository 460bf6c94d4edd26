package memlog_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

var stormSeeds = flag.Uint64("storm.seeds", 1, "how many seeds to play")

// storm is a cluster whose members lease shards and append to them, as an engine would,
// while members are killed, frozen and cut off and operations fail.
type storm struct {
	t      *testing.T
	store  *memlog.Store
	random *rand.Rand // used only by the test's goroutine

	mu           sync.Mutex
	appended     uint64
	acknowledged map[int][]journal.ID // by shard
}

// TestStorm checks that nothing acknowledged is lost, and that no shard is
// without an owner when the storm is over.
func TestStorm(t *testing.T) {
	for seed := range *stormSeeds {
		synctest.Test(t, func(t *testing.T) {
			s := &storm{
				t: t, store: &memlog.Store{Shards: 5}, random: rand.New(rand.NewPCG(seed, 0)),
				acknowledged: map[int][]journal.ID{},
			}
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			members := []*memlog.Member{s.start(ctx, &group), s.start(ctx, &group), s.start(ctx, &group)}
			for range 200 {
				i := s.random.IntN(len(members))
				if s.strike(members[i]) {
					members[i] = s.start(ctx, &group)
				}
				time.Sleep(time.Duration(s.random.IntN(4000)) * time.Millisecond)
			}
			for _, m := range members {
				m.Disturb(nil)
				m.Thaw()
				m.Heal()
			}
			time.Sleep(time.Minute)
			s.wantOwners(members)
			cancel()
			group.Wait()
			s.wantEntries()
		})
	}
}

// strike kills, freezes or cuts off a member, and reports whether it has killed it.
func (s *storm) strike(m *memlog.Member) (killed bool) {
	switch s.random.IntN(8) {
	case 0:
		m.Kill()
		return true
	case 1:
		m.Freeze()
	case 2, 3:
		m.Thaw()
	case 4:
		m.Cut()
	case 5, 6:
		m.Heal()
	default:
		faults := []memlog.Fault{
			{}, {Delay: 100 * time.Millisecond}, {Before: errBroken}, {After: errBroken},
			{After: errBroken, Late: 4 * time.Second},
		}
		m.Disturb(func(memlog.Operation) memlog.Fault { return faults[rand.IntN(len(faults))] })
	}
	return false
}

// start starts a process that leases the shards that it is assigned.
func (s *storm) start(ctx context.Context, group *sync.WaitGroup) *memlog.Member {
	m := s.store.Join("process")
	group.Go(func() {
		defer m.Close()
		var owners sync.WaitGroup
		defer owners.Wait()
		owned := map[int]chan struct{}{}
		for ctx.Err() == nil {
			assigned, changed := m.Assigned()
			for _, n := range assigned {
				if done := owned[n]; done == nil || isDone(done) {
					done = make(chan struct{})
					owned[n] = done
					owners.Go(func() {
						defer close(done)
						s.own(ctx, m, n)
					})
				}
			}
			select {
			case <-changed:
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return m
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// own appends to a shard for as long as the process should own it.
func (s *storm) own(ctx context.Context, m *memlog.Member, shard int) {
	l, err := m.Lease(ctx, shard)
	if err != nil {
		return
	}
	defer l.Release()
	_, last, err := l.Bounds(ctx)
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		if assigned, _ := m.Assigned(); !slices.Contains(assigned, shard) {
			return
		}
		seq, err := s.appendEntry(ctx, l, shard, last)
		if err != nil {
			return
		}
		last = seq
		select {
		case <-time.After(300 * time.Millisecond):
		case <-l.Lost():
			return
		case <-ctx.Done():
		}
	}
}

// appendEntry repeats an append until it is known whether the entry was recorded.
func (s *storm) appendEntry(ctx context.Context, l journal.Lease, shard int, last uint64) (uint64, error) {
	var id journal.ID
	s.mu.Lock()
	s.appended++
	binary.BigEndian.PutUint64(id[:], s.appended)
	s.mu.Unlock()
	for {
		seq, err := l.Append(ctx, last, id, id[:])
		switch {
		case err == nil:
			s.mu.Lock()
			s.acknowledged[shard] = append(s.acknowledged[shard], id)
			s.mu.Unlock()
			return seq, nil
		case errors.Is(err, journal.ErrStale), ctx.Err() != nil:
			return 0, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (s *storm) wantOwners(members []*memlog.Member) {
	status, err := members[0].Status(s.t.Context())
	if err != nil || len(status.Members) != len(members) {
		s.t.Fatalf("Status() = %+v, %v; want %d members", status, err, len(members))
	}
	for _, m := range members {
		assigned, _ := m.Assigned()
		for _, n := range assigned {
			if status.Shards[n].Owner != m.Member() {
				s.t.Errorf("shard %d is owned by %q; want %q", n, status.Shards[n].Owner, m.Member())
			}
		}
	}
}

// wantEntries checks that the log of each shard has everything that was
// acknowledged, once and in order, and that epochs never fall.
func (s *storm) wantEntries() {
	log := s.store.Open()
	defer log.Close()
	for n := range s.store.Shards {
		l, err := log.Lease(s.t.Context(), n)
		if err != nil {
			s.t.Fatalf("Lease(%d) = %v", n, err)
		}
		var epoch uint64
		missing := s.acknowledged[n]
		acknowledged := len(missing)
		seen := map[journal.ID]bool{}
		for e, err := range l.Read(s.t.Context(), 1) {
			if err != nil || e.Epoch < epoch || seen[e.ID] {
				s.t.Fatalf("shard %d: entry %d has epoch %d after %d, seen before: %v, %v", n, e.Seq, e.Epoch, epoch, seen[e.ID], err)
			}
			epoch, seen[e.ID] = e.Epoch, true
			if len(missing) > 0 && e.ID == missing[0] {
				missing = missing[1:]
			}
		}
		if acknowledged < 100 || len(missing) > 0 {
			s.t.Errorf("shard %d: of %d acknowledged entries %d are missing, or out of order; want many and none", n, acknowledged, len(missing))
		}
	}
}
