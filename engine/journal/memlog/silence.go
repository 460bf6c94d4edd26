package memlog

import (
	"cmp"
	"slices"
	"time"
)

// silence is a period in which the heartbeats of a member do not arrive.
type silence struct {
	since time.Time
	timer *time.Timer // when it fires, the member counts as dead
}

func (s *silence) length() time.Duration {
	if s == nil {
		return 0
	}
	return time.Since(s.since)
}

// Kill ends the process at once, as SIGKILL does. It answers no more requests, all its
// later calls fail, and its leases are lost. The others can lease its shards only when
// it counts as dead, after Store.Silence.
func (m *Member) Kill() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if isClosed(m.gone) {
		return
	}
	m.killed = true
	close(m.gone)
	m.wake()
	m.end()
	m.inbox = nil
	m.beginSilence()
}

// Freeze stops the process, as SIGSTOP does: until Thaw, its calls to the store wait,
// Release and Close included, and it does not learn of changes. Requests to it wait too.
func (m *Member) Freeze() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if isClosed(m.gone) || m.thawed != nil {
		return
	}
	m.thawed = make(chan struct{})
	m.beginSilence()
}

// Thaw lets a frozen process continue. It first delivers the requests that have waited.
// If the process was expelled as dead meanwhile, it then learns that its leases are
// lost, and joins again; it may have acted on some requests before.
func (m *Member) Thaw() {
	m.store.mu.Lock()
	if isClosed(m.gone) || m.thawed == nil {
		m.store.mu.Unlock()
		return
	}
	waiting := m.inbox
	m.inbox = nil
	m.wake()
	m.store.mu.Unlock()
	for _, deliver := range waiting {
		deliver()
	}
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.endSilence()
}

// Cut cuts the process off from the store and from the others: until Heal, its requests
// fail, and requests to it are lost. When it is cut off for so long that it counts as
// dead, it loses its leases.
func (m *Member) Cut() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if isClosed(m.gone) || m.cut {
		return
	}
	m.cut = true
	m.beginSilence()
}

// Heal reverts Cut. If the process was expelled as dead meanwhile, it joins again.
func (m *Member) Heal() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if isClosed(m.gone) || !m.cut {
		return
	}
	m.cut = false
	m.endSilence()
}

// beginSilence records that the heartbeats of the member stop now. The member is
// removed when that lasts for Store.Silence.
func (m *Member) beginSilence() {
	if m.silent != nil {
		return
	}
	begun := &silence{since: time.Now()}
	begun.timer = time.AfterFunc(cmp.Or(m.store.Silence, defaultSilence), func() {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		if m.silent == begun {
			m.store.remove(m)
		}
	})
	m.silent = begun
}

// endSilence reverts beginSilence, unless the member is still frozen or cut off. A
// member that was removed joins again.
func (m *Member) endSilence() {
	if m.thawed != nil || isClosed(m.gone) {
		return
	}
	m.syncLeases()
	if m.cut || m.silent == nil {
		return
	}
	m.silent.timer.Stop()
	m.silent = nil
	if !slices.Contains(m.store.members, m) {
		m.store.add(m)
		return
	}
	m.store.assign()
}

// syncLeases makes the store and the process agree about the leases: a lease that has
// ended for only one of them ends for the other too.
func (m *Member) syncLeases() {
	for l := range m.leases {
		if l.shard.owner != l {
			l.lose()
		}
		if isClosed(l.lost) && !m.cut {
			l.free()
		}
	}
}

// end ends all leases for a process that has ended. For the store they go on until Store.remove
// or free is called.
func (m *Member) end() {
	m.server.answer = nil
	for l := range m.leases {
		l.lose()
	}
}

// remove removes a member from the cluster and frees its shards.
func (s *Store) remove(m *Member) {
	s.members = slices.DeleteFunc(s.members, func(other *Member) bool { return other == m })
	m.server.stop()
	for l := range m.leases {
		l.shard.owner = nil
		l.server.stop()
	}
	if m.thawed == nil { // a process that is not frozen learns that at once
		m.assignOf(nil)
		for l := range m.leases {
			l.lose()
			l.free()
		}
	}
	s.assign()
}
