package memlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Member is a process that shares the store. It implements [journal.Cluster].
type Member struct {
	process
	name   string
	format int // what it says that it can read: see journal.Format

	id       string // empty if it has not joined
	joined   time.Time
	assigned []int
	changed  chan struct{}
	leases   map[*lease]bool // leases that have not ended both for the store and for the owner
	server   *server         // answers requests to the member

	silent *silence // nil if its heartbeats arrive

	boot   string               // id of the boot of its machine
	booted time.Time            // when that was
	met    map[string]time.Time // when the machines were booted whose members' heartbeats it has seen, by boot
}

var _ journal.Cluster = (*Member)(nil)

var (
	errClosed = errors.New("memlog: the log is closed")
	errKilled = errors.New("memlog: the process was killed")
	errCut    = errors.New("memlog: cut off from the store")
)

// Join adds a new member to the cluster that shares the store. name is the name that
// the member gives itself, "member" if empty; its id is the name and a number that no
// other member has.
func (s *Store) Join(name string) *Member { return s.JoinOlder(name, journal.Format) }

// JoinOlder is Join for a member that says it can read only formats up to this one, as a
// member of an older release does: see [journal.Format].
func (s *Store) JoinOlder(name string, format int) *Member {
	m := s.newMember(cmp.Or(name, "member"))
	m.format = format
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(m)
	return m
}

func (s *Store) newMember(name string) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made.IsZero() {
		s.made = time.Now()
	}
	for len(s.shards) < max(s.Shards, 1) {
		s.shards = append(s.shards, &shard{first: 1, blobs: map[string]blob{}})
	}
	m := &Member{
		process: process{store: s, gone: make(chan struct{})}, name: name, leases: map[*lease]bool{}, changed: make(chan struct{}),
		boot: "memlog", booted: s.made, met: map[string]time.Time{},
	}
	m.server = newServer(m)
	return m
}

// add adds a process to the members, under a new id.
func (s *Store) add(m *Member) {
	s.joined++
	m.id, m.joined = fmt.Sprintf("%s-%d", m.name, s.joined), time.Now()
	m.server = &server{member: m, answer: m.server.answer, left: make(chan struct{})}
	s.members = append(s.members, m)
	s.assign()
}

// SetBoot makes the member one of another machine, which was booted at a time; by default all
// members are on one machine. It must be called before the member is used.
func (m *Member) SetBoot(id string, at time.Time) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.boot, m.booted = id, at
	m.store.meet()
}

// meet records that the heartbeats of the members that can be reached arrive at each other.
func (s *Store) meet() {
	for _, m := range s.members {
		for _, other := range s.members {
			if m.silent == nil && other.silent == nil {
				m.met[other.boot] = other.booted
			}
		}
	}
}

// assign assigns the shards to the members that can be reached.
func (s *Store) assign() {
	s.meet()
	owners := journal.Assign(s.ids(), len(s.shards))
	for _, m := range s.members {
		if m.silent == nil {
			m.assignOf(owners)
		}
	}
}

func (m *Member) assignOf(owners []string) {
	var mine []int
	for n, owner := range owners {
		if owner == m.id {
			mine = append(mine, n)
		}
	}
	if slices.Equal(mine, m.assigned) {
		return
	}
	m.assigned = mine
	close(m.changed)
	m.changed = make(chan struct{})
}

// Shards implements [journal.Cluster].
func (m *Member) Shards() int { return max(m.store.Shards, 1) }

// Member implements [journal.Cluster].
func (m *Member) Member() string {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	return m.id
}

// Members implements [journal.Cluster].
func (m *Member) Members() []string {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	return slices.Sorted(slices.Values(m.store.ids()))
}

// Behind implements [journal.Cluster].
func (m *Member) Behind(format int) []journal.Member {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	return slices.DeleteFunc(m.store.describeMembers(), func(m journal.Member) bool { return m.Format >= format })
}

func (s *Store) ids() (ids []string) {
	for _, m := range s.members {
		ids = append(ids, m.id)
	}
	return ids
}

// Assigned implements [journal.Cluster].
func (m *Member) Assigned() (shards []int, changed <-chan struct{}) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	return slices.Clone(m.assigned), m.changed
}

// Close implements [journal.Log]. If the member is cut off, the others do not learn
// that it has left; it counts as dead later. For a killed member Close does nothing.
func (m *Member) Close() error {
	unlock, err := m.lock(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	if isClosed(m.gone) {
		return nil
	}
	close(m.gone)
	m.end()
	if m.cut {
		return errCut
	}
	m.store.remove(m)
	return nil
}

// Disturb sets the function that decides the fault of each operation of the member.
// Several goroutines may call it at once. nil means no faults.
func (m *Member) Disturb(decide func(Operation) Fault) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.disturb = decide
}

// Settle implements [journal.Cluster].
func (m *Member) Settle(ctx context.Context, name, value string) (string, error) {
	f, unlock, err := m.begin(ctx, Operation{Name: "settle", Shard: -1})
	if err != nil {
		return "", err
	}
	defer unlock()
	s := m.store
	if s.settled == nil {
		s.settled = map[string]string{}
	}
	if _, known := s.settled[name]; !known && value != "" {
		s.settled[name] = value
	}
	return s.settled[name], f.After
}

// Status implements [journal.Cluster].
func (m *Member) Status(ctx context.Context) (journal.Status, error) {
	_, unlock, err := m.begin(ctx, Operation{Name: "status", Shard: -1})
	if err != nil {
		return journal.Status{}, err
	}
	defer unlock()
	return m.store.status(), nil
}

func (s *Store) describeMembers() (list []journal.Member) {
	for _, m := range s.members {
		list = append(list, journal.Member{ID: m.id, Name: m.name, Joined: m.joined, Silence: m.silent.length(), Format: m.format})
	}
	journal.SortMembers(list)
	return list
}

func (s *Store) status() (status journal.Status) {
	status.Members = s.describeMembers()
	for n, sh := range s.shards {
		known := journal.Shard{Number: n, Epoch: sh.epoch, First: sh.first, Last: sh.last(), Bytes: sh.bytes}
		if sh.owner != nil {
			known.Owner = sh.owner.member.id
		}
		status.Shards = append(status.Shards, known)
	}
	return status
}
