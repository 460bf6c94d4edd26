package memlog

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// process is the process of a member: it may be frozen, cut off or gone. The lock of the
// store guards it.
type process struct {
	store *Store

	gone   chan struct{} // closed when the process has ended
	killed bool
	cut    bool
	thawed chan struct{} // nil if it is not frozen
	inbox  []func()      // messages that wait for it to thaw

	disturb func(Operation) Fault
}

// Operation is a request of a member to the store or to another member.
type Operation struct {
	// Name is the name of the method, in lower case: lease, bounds, append, read,
	// truncate, put, get, blobs, delete, peek, call, ask, settle or
	// status.
	Name string

	Shard int // -1 for ask, settle and status
}

// Fault makes an operation slow or fail. The zero Fault does nothing.
type Fault struct {
	Delay  time.Duration // wait before the operation
	Before error         // returned instead of the operation, which is not done
	After  error         // returned although the operation is done, as if its answer was lost

	// Late, together with After, makes the operation happen this long after After was
	// returned, as if the request was delayed in the network. A late append succeeds
	// even if the lease has ended, unless another entry was appended meanwhile. It has
	// no effect on lease, settle and status.
	Late time.Duration
}

// lock waits until the process is not frozen, and locks the store.
func (p *process) lock(ctx context.Context) (unlock func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.store.mu.Lock()
		thawed := p.thawed
		if thawed == nil {
			return p.store.mu.Unlock, nil
		}
		p.store.mu.Unlock()
		select {
		case <-thawed:
		case <-ctx.Done():
		}
	}
}

// enter is lock for a process that must be able to reach the store.
func (p *process) enter(ctx context.Context) (unlock func(), err error) {
	unlock, err = p.lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.reach(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// reach returns an error if the process can't reach the store.
func (p *process) reach() error {
	switch {
	case p.killed:
		return errKilled
	case isClosed(p.gone):
		return errClosed
	case p.cut:
		return errCut
	}
	return nil
}

// wake thaws the process: it ends the waits of its frozen calls.
func (p *process) wake() {
	if p.thawed != nil {
		close(p.thawed)
		p.thawed = nil
	}
}

// accept reports whether the process can handle a message now. If the process is frozen,
// accept keeps later, and Thaw calls it. If the process can't be reached, the message is
// lost.
func (p *process) accept(later func()) bool {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if p.reach() != nil {
		return false
	}
	if p.thawed != nil {
		p.inbox = append(p.inbox, later)
		return false
	}
	return true
}

// reachable reports whether messages reach the process.
func (p *process) reachable() bool {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return p.reach() == nil
}

// suffer asks the function of [Member.Disturb] for the fault of the operation. It waits
// for the fault's Delay, and returns its Before as the error. The caller must handle the
// rest of the fault.
func (p *process) suffer(ctx context.Context, op Operation) (f Fault, err error) {
	p.store.mu.Lock()
	decide := p.disturb
	p.store.mu.Unlock()
	if decide != nil {
		f = decide(op)
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.gone: // the caller's next check returns the error
		case <-ctx.Done():
			return f, ctx.Err()
		}
	}
	return f, f.Before
}

// begin begins an operation: it locks the store, when the process can reach it.
func (p *process) begin(ctx context.Context, op Operation) (f Fault, unlock func(), err error) {
	if f, err = p.suffer(ctx, op); err == nil {
		unlock, err = p.enter(ctx)
	}
	return f, unlock, err
}

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
