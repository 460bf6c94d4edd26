package memlog

import (
	"cmp"
	"slices"
	"time"
)

// silence is a time in which a member is not heard of.
type silence struct {
	since time.Time
	timer *time.Timer // at its end the member is taken for dead
}

func (s *silence) length() time.Duration {
	if s == nil {
		return 0
	}
	return time.Since(s.since)
}

// Kill ends the process at once, as SIGKILL does. It answers nothing any more, and
// its leases are lost to it; but the others have to wait for them until they take
// it for dead. What it does from now on fails.
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
// Release and Close included, and it learns of nothing. Requests to it wait too.
func (m *Member) Freeze() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if isClosed(m.gone) || m.thawed != nil {
		return
	}
	m.thawed = make(chan struct{})
	m.beginSilence()
}

// Thaw lets a frozen process go on. If it was taken for dead meanwhile, it now
// learns that its leases are lost, and joins again. It learns that after it has
// been handed the requests that have waited, so it may act on some first.
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
// fail, and requests to it are lost. If it is cut
// off for so long that it is taken for dead, it knows that its leases are lost.
func (m *Member) Cut() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if isClosed(m.gone) || m.cut {
		return
	}
	m.cut = true
	m.beginSilence()
}

// Heal ends what Cut has begun. If the process was taken for dead meanwhile, it
// joins again.
func (m *Member) Heal() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if isClosed(m.gone) || !m.cut {
		return
	}
	m.cut = false
	m.endSilence()
}

// beginSilence begins a silence.
func (m *Member) beginSilence() {
	if m.silent != nil {
		return
	}
	begun := &silence{since: time.Now()}
	begun.timer = time.AfterFunc(cmp.Or(m.store.Silence, defaultSilence), func() {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		if m.silent == begun {
			m.leave()
		}
	})
	m.silent = begun
}

// endSilence ends a silence, if nothing else keeps the member silent.
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
		m.join()
		return
	}
	m.store.assign()
}

// syncLeases ends leases that have ended for the store or for the process only.
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

// end loses the leases of a process that has ended.
func (m *Member) end() {
	m.server.answer = nil
	for l := range m.leases {
		l.lose()
	}
}

// leave takes the member out of the cluster: its shards are free.
func (m *Member) leave() {
	s := m.store
	s.members = slices.DeleteFunc(s.members, func(other *Member) bool { return other == m })
	m.server.leave()
	for l := range m.leases {
		l.shard.owner = nil
		l.server.leave()
	}
	if m.thawed == nil { // the process learns of it
		m.assignOf(nil)
		for l := range m.leases {
			l.lose()
			l.free()
		}
	}
	s.assign()
}
