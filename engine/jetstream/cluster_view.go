package jetstream

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/journal"
)

// clusterView is the newest state of the cluster that this process has read, and
// what follows from it: the assigned shards and the members that are silent.
type clusterView struct {
	*backend
	member  *membership
	changes changeNotice // changes of the bucket that members have announced

	mu           sync.Mutex
	state        *clusterState // nil before the bucket was read
	stateChanged chan struct{} // closed when members or owners of shards change
	read         time.Time     // when the state was read from the bucket
	silence      silence
	assigned     []int
	assignedTo   string        // member id that the shards are assigned to
	reassigned   chan struct{} // closed when the assigned shards change
}

func newClusterView(b *backend, member *membership) *clusterView {
	return &clusterView{
		backend: b, member: member, silence: silence{}, changes: changeNotice{signal: make(chan struct{}, 1)},
		stateChanged: make(chan struct{}), reassigned: make(chan struct{}),
	}
}

// adopt makes s the present state and returns true, unless s is older than the present
// one. If every state that is read for a long time is older, the bucket was restored
// from a backup; then adopt accepts the older state.
func (v *clusterView) adopt(s *clusterState, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state != nil && s.revision < v.state.revision && now.Sub(v.read) < v.timing.ended {
		return false
	}
	old := v.state
	v.state = s
	v.silence.update(s.members, now)
	if !v.member.beatsArrive(now) || now.Sub(v.read) > v.timing.fresh {
		v.silence.restart(now)
	}
	v.read = now
	if old == nil || !old.same(s) {
		close(v.stateChanged)
		v.stateChanged = make(chan struct{})
		v.assign()
	} else if v.member.self() != v.assignedTo {
		v.assign() // the state was read before this process knew its new member id
	}
	return true
}

// reassign works out the assigned shards again, after the membership has changed.
func (v *clusterView) reassign() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.assign()
}

// assign works out the assigned shards. The lock is held.
func (v *clusterView) assign() {
	var assigned []int
	v.assignedTo = v.member.self()
	if v.state != nil {
		assigned = v.state.assigned(v.assignedTo)
	}
	if slices.Equal(assigned, v.assigned) {
		return
	}
	v.assigned = assigned
	close(v.reassigned)
	v.reassigned = make(chan struct{})
}

// assignedShards returns the assigned shards, and a channel that is closed when they
// change.
func (v *clusterView) assignedShards() (shards []int, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.assigned), v.reassigned
}

// current returns the state, and a channel that is closed when the members or the owners
// of shards change.
func (v *clusterView) current() (*clusterState, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state, v.stateChanged
}

// members describes the members of a state.
func (v *clusterView) members(s *clusterState) (list []journal.Member) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, m := range s.members {
		list = append(list, journal.Member{
			ID: id, Name: m.Name, Joined: m.Joined, Silence: now.Sub(v.silence[id].at), Format: max(m.Format, 1),
		})
	}
	journal.SortMembers(list)
	return list
}

// behind returns the members that can't read the format.
func (v *clusterView) behind(format int) []journal.Member {
	state, _ := v.current()
	if state == nil || !state.isBehind(format) {
		return nil
	}
	return slices.DeleteFunc(v.members(state), func(m journal.Member) bool { return m.Format >= format })
}

// silent returns the members of the state, which of them sent no heartbeat for so long that
// they are expelled if they have no connection, and which are expelled in any case.
func (v *clusterView) silent(now time.Time) (members map[string]memberRecord, quiet, dead []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.members, v.silence.longerThan(now, v.timing.gone), v.silence.longerThan(now, v.timing.expelAt)
}

// connectionChanged is called when the connection to NATS is lost or is back.
func (v *clusterView) connectionChanged() {
	if v.c.nc.IsConnected() {
		v.changes.announce(0)
	}
}

// changeNotice is the newest change of the bucket that a member has announced.
type changeNotice struct {
	revision atomic.Uint64 // 0 means none
	signal   chan struct{} // has an element when the bucket should be read
}

// announce records a change; 0 means that its revision is not known.
func (n *changeNotice) announce(revision uint64) {
	raise(&n.revision, revision)
	select {
	case n.signal <- struct{}{}:
	default:
	}
}

// receive records a change that [backend.notify] has announced.
func (n *changeNotice) receive(m *nats.Msg) {
	revision, err := strconv.ParseUint(string(m.Data), 10, 64)
	if err == nil {
		n.announce(revision)
	}
}

// raise sets the number to n, unless the number is already larger than n.
func raise(number *atomic.Uint64, n uint64) {
	for {
		old := number.Load()
		if old >= n || number.CompareAndSwap(old, n) {
			return
		}
	}
}

// silence records, for each member, when this process saw its last heartbeat. It is not
// safe for concurrent use.
type silence map[string]heard

type heard struct {
	revision uint64
	at       time.Time
}

// update records that a heartbeat has arrived now from each member whose record has a new
// revision. It removes the members that have left.
func (s silence) update(members map[string]memberRecord, now time.Time) {
	maps.DeleteFunc(s, func(id string, _ heard) bool { _, ok := members[id]; return !ok })
	for id, m := range members {
		if s[id].revision != m.revision {
			s[id] = heard{m.revision, now}
		}
	}
}

// restart makes the silence of every member begin now.
func (s silence) restart(now time.Time) {
	for id, h := range s {
		s[id] = heard{h.revision, now}
	}
}

// longerThan returns the members without a heartbeat for at least d, in order.
func (s silence) longerThan(now time.Time, d time.Duration) (ids []string) {
	for id, h := range s {
		if now.Sub(h.at) >= d {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
