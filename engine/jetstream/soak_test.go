package jetstream

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

var soakHarms = flag.Int("soak.harms", 1, "how often the soak test does something bad to servers and members")

const soakShards = 3

// soak has members that append to the shards that they are assigned, and records which
// entries were acknowledged.
type soak struct {
	t     *testing.T
	cfg   Config
	nodes *natstest.Cluster

	mu     sync.Mutex
	acked  [soakShards]map[uint64]journal.ID
	epochs [soakShards]map[uint64]bool
}

// TestSoak kills, stops and cuts off servers and members, one after the other, and
// checks that nothing that was acknowledged is lost or recorded twice.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := &soak{t: t, nodes: natstest.Start(t, 3, natstest.WithProxies())}
	for n := range s.acked {
		s.acked[n], s.epochs[n] = map[uint64]journal.ID{}, map[uint64]bool{}
	}
	s.cfg = Config{URL: s.nodes.URL(), Name: newName(), Shards: soakShards, LeaseTime: 6 * time.Second}
	var members []*soakMember
	for range 3 {
		members = append(members, s.join())
	}
	for i := range *soakHarms {
		s.progress()
		harm := soakHarmList[(i+rand.IntN(2))%len(soakHarmList)]
		t.Logf("harm %d: %s", i+1, harm.name)
		harm.do(s, rand.IntN(3), &members)
	}
	s.progress()
	for _, m := range members {
		m.leave()
	}
	s.judge()
}

var soakHarmList = []struct {
	name string
	do   func(s *soak, victim int, members *[]*soakMember)
}{
	{"a server is killed", func(s *soak, victim int, _ *[]*soakMember) {
		s.nodes.Kill(victim)
		s.progress()
		s.nodes.Restart(victim)
		s.nodes.WaitReady()
	}},
	{"a member is killed", func(s *soak, victim int, members *[]*soakMember) {
		(*members)[victim].kill()
		(*members)[victim] = s.join()
	}},
	{"a server hangs", func(s *soak, victim int, _ *[]*soakMember) {
		s.nodes.Stop(victim)
		s.progress()
		s.nodes.Continue(victim)
		s.nodes.WaitReady()
	}},
	{"a server is cut off", func(s *soak, victim int, _ *[]*soakMember) {
		s.nodes.Cut(victim)
		s.progress()
		s.nodes.Heal(victim)
		s.nodes.WaitReady()
	}},
	{"a member leaves", func(s *soak, victim int, members *[]*soakMember) {
		(*members)[victim].leave()
		(*members)[victim] = s.join()
	}},
	{"all servers are killed at once", func(s *soak, _ int, _ *[]*soakMember) {
		for i := range s.nodes.Nodes() {
			s.nodes.Kill(i)
		}
		for i := range s.nodes.Nodes() {
			s.nodes.Restart(i)
		}
		s.nodes.WaitReady()
	}},
}

// progress waits until some more entries were recorded in every shard.
func (s *soak) progress() {
	s.t.Helper()
	count := func() (n [soakShards]int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.acked {
			n[i] = len(s.acked[i])
		}
		return n
	}
	before := count()
	natstest.Wait(s.t, func(context.Context) error {
		for i, n := range count() {
			if n < before[i]+10 {
				return fmt.Errorf("shard %d has recorded %d entries since", i, n-before[i])
			}
		}
		return nil
	})
}

// soakMember is a member with a goroutine for each shard.
type soakMember struct {
	log   *Log
	stop  context.CancelFunc
	group sync.WaitGroup
}

func (s *soak) join() *soakMember {
	m := &soakMember{log: mustOpen(s.t, s.cfg)}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	s.t.Cleanup(m.leave)
	for n := range soakShards {
		m.group.Go(func() { s.own(ctx, m.log, n) })
	}
	return m
}

func (m *soakMember) leave() {
	m.stop()
	m.group.Wait()
	m.log.Close()
}

func (m *soakMember) kill() {
	m.log.kill()
	m.stop()
	m.group.Wait()
}

// soakWait is the policy with which a member waits for a shard, and for servers.
var soakWait = retry.Must("fixed(20ms) jitter=50% attempts=unlimited")

// own appends to the shard whenever the member owns it.
func (s *soak) own(ctx context.Context, log *Log, shard int) {
	_ = soakWait.Do(ctx, func(ctx context.Context) error {
		if assigned, _ := log.Assigned(); !slices.Contains(assigned, shard) {
			return errors.New("assigned to another member")
		}
		l, err := log.Lease(ctx, shard)
		if err != nil {
			return err
		}
		defer l.Release()
		s.begin(shard, l.Epoch())
		_, last, err := l.Bounds(ctx)
		for err == nil && ctx.Err() == nil {
			if assigned, _ := log.Assigned(); !slices.Contains(assigned, shard) {
				return errors.New("assigned to another member now")
			}
			if last, err = s.append(ctx, l, shard, last); err == nil {
				pause(ctx)
			}
		}
		return fmt.Errorf("begin again: %v", err)
	})
}

// pause waits for a moment, so that servers and other members can work.
func pause(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond): // real clock: only how much is appended depends on it
	case <-ctx.Done():
	}
}

// append repeats the append of one entry until it is recorded or the lease has ended.
func (s *soak) append(ctx context.Context, l journal.Lease, shard int, last uint64) (seq uint64, err error) {
	id := testID(rand.Uint64())
	for range soakWait.Attempts(ctx, &err) {
		seq, err = l.Append(ctx, last, id, fmt.Appendf(nil, "%x", id))
		if errors.Is(err, journal.ErrStale) || errors.Is(err, journal.ErrDamaged) {
			err = retry.Permanent(err)
		}
	}
	if errors.Is(err, journal.ErrDamaged) {
		s.t.Error(err)
	}
	if err == nil {
		s.mu.Lock()
		s.acked[shard][seq] = id
		s.mu.Unlock()
	}
	return seq, err
}

func (s *soak) begin(shard int, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epochs[shard][epoch] {
		s.t.Errorf("shard %d: two leases have the epoch %d", shard, epoch)
	}
	s.epochs[shard][epoch] = true
}

// read returns all entries of a shard. On a slow machine the lease may end meanwhile.
func (s *soak) read(log *Log, shard int) (entries []journal.Entry) {
	s.t.Helper()
	natstest.Wait(s.t, func(ctx context.Context) error {
		entries = nil
		l, err := log.Lease(ctx, shard)
		if err != nil {
			return err
		}
		defer l.Release()
		for e, err := range l.Read(ctx, 1) {
			if errors.Is(err, journal.ErrDamaged) {
				return retry.Permanent(err)
			}
			if err != nil {
				return err
			}
			e.Data = bytes.Clone(e.Data)
			entries = append(entries, e)
		}
		return nil
	})
	return entries
}

// judge compares the logs with the acknowledged entries.
func (s *soak) judge() {
	s.t.Helper()
	log := openTest(s.t, s.cfg)
	total := 0
	for n := range soakShards {
		entries, ids := map[uint64]journal.ID{}, map[journal.ID]bool{}
		for _, e := range s.read(log, n) {
			if ids[e.ID] {
				s.t.Errorf("shard %d: entry %d is there twice", n, e.Seq)
			}
			entries[e.Seq], ids[e.ID] = e.ID, true
			if string(e.Data) != fmt.Sprintf("%x", e.ID) {
				s.t.Errorf("shard %d: entry %d has other contents than were appended", n, e.Seq)
			}
		}
		for seq, id := range s.acked[n] {
			if entries[seq] != id {
				s.t.Errorf("shard %d: entry %d was acknowledged, and is lost", n, seq)
			}
		}
		total += len(s.acked[n])
	}
	s.t.Logf("%d entries were acknowledged", total)
}
