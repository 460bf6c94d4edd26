package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

var errSilent = errors.New("no heartbeat of this member has reached the others in time")

// newMemberID returns a random id that no other member has.
func newMemberID() string { return strings.ToLower(rand.Text()[:10]) }

// membership is this process as a member of the cluster: it joins, sends heartbeats,
// joins again after it was expelled, and leaves.
//
// Its lock may be taken while that of a clusterView or a leaseTable is held, never
// the other way round.
type membership struct {
	*backend
	troubles *troubleLog
	onJoin   func(revision uint64) // called with the revision of the new member record
	onEnd    func(why error)       // called when the process was expelled, or the cluster was replaced
	onBeat   func(word string)     // called with each heartbeat: see machineClocks.send
	woken    chan struct{}         // has an element when the heartbeat state has changed
	ended    chan struct{}         // closed when the process can't be a member again

	mu        sync.Mutex
	id        string // member id of the last join
	joined    bool
	revision  uint64 // revision of the member record
	record    memberRecord
	requests  *requestServer // serves requests to the member
	answer    journal.Answer
	heartbeat heartbeatState
	wrong     error // why the process can't be a member again; nil while it can
}

func newMembership(b *backend, troubles *troubleLog) *membership {
	return &membership{
		backend: b, troubles: troubles, heartbeat: heartbeatState{timing: b.timing},
		woken: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// lastID returns the member id. While the process is not a member, it returns its last
// id.
func (m *membership) lastID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// self returns the member id, or "" while the process is not a member.
func (m *membership) self() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.joined {
		return ""
	}
	return m.id
}

// join becomes a member under a new id.
func (m *membership) join(ctx context.Context) error {
	id, now := newMemberID(), time.Now()
	record := memberRecord{Name: m.cfg.MemberName, Joined: now.UTC(), Wall: now.UTC(), Beat: 1, Format: journal.Format}
	// Serve requests before the record is stored: a member that does not answer a ping
	// counts as a process that has ended.
	requests, err := newRequestServer(m.c, m.names.memberSubject(id), nil)
	if err != nil {
		return err
	}
	revision, err := m.bucket.putJSON(ctx, memberKey(id), record, 0)
	if err != nil {
		// If the record was stored although the answer was lost, it gets no heartbeats,
		// and the others remove it.
		requests.close()
		return fmt.Errorf("join: %w", err)
	}
	m.mu.Lock()
	old := m.requests
	m.id, m.joined, m.revision, m.record, m.requests = id, m.wrong == nil, revision, record, requests
	m.heartbeat.arrived(now)
	m.requests.serve(m.answer)
	m.mu.Unlock()
	if old != nil {
		old.close()
	}
	m.wake()
	m.notify(revision)
	m.onBeat(clockAsked)
	m.onJoin(revision)
	return nil
}

// rejoin joins again, if the cluster is still the one that the process was in.
func (m *membership) rejoin(ctx context.Context) error {
	if err := m.endIfReplaced(m.confirmSettings(ctx)); err != nil {
		return err
	}
	return m.join(ctx)
}

// endIfReplaced ends the membership for good if err says that the cluster was replaced. It
// returns err, or the first such error.
func (m *membership) endIfReplaced(err error) error {
	if !errors.Is(err, ErrReplaced) {
		return err
	}
	m.mu.Lock()
	first := m.wrong == nil
	m.wrong = cmp.Or(m.wrong, err)
	err = m.wrong
	m.joined = false
	m.mu.Unlock()
	m.onEnd(err)
	if first {
		close(m.ended)
	}
	return err
}

// err returns why the process can't be a member again, nil while it can.
func (m *membership) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wrong
}

// leave removes the member record. The last heartbeat may have been stored without
// an answer, so the record is read first.
func (m *membership) leave(ctx context.Context) error {
	key := memberKey(m.lastID())
	r, err := m.bucket.get(ctx, key)
	if errors.Is(err, errNoMessage) {
		return nil
	}
	if err != nil {
		return err
	}
	err = m.bucket.remove(ctx, key, r.revision)
	if errors.Is(err, errConflict) {
		return errChanged
	}
	if err == nil {
		m.notify(0)
	}
	return err
}

// run sends heartbeats, and joins again when the others have expelled this member.
func (m *membership) run() {
	ticker := time.NewTicker(m.timing.beat)
	defer ticker.Stop()
	for {
		select {
		case <-m.life.Done():
			return
		case <-ticker.C:
		}
		err := joins.Do(m.life, func(ctx context.Context) error {
			err := m.beat(ctx)
			m.troubles.report("heartbeat failed", err)
			return err
		})
		if errors.Is(err, errExpelled) {
			m.expelled()
			_ = joins.Do(m.life, m.rejoin) // ends when it succeeds, when the log is closed, or when m.err is set
		}
		if m.err() != nil {
			_ = farewells.Do(m.life, m.leave) // if it fails, the others expel this member
			return
		}
	}
}

// beat sends one heartbeat. If it arrives, it extends the leases for a time that starts
// with the call of beat.
func (m *membership) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.timing.fresh)
	defer cancel()
	begun := time.Now()
	m.onBeat(clockTold)
	m.mu.Lock()
	m.record.Beat++
	m.record.Wall = begun.UTC()
	key, record, revision := memberKey(m.id), m.record, m.revision
	m.mu.Unlock()
	next, err := m.bucket.putJSON(ctx, key, record, revision)
	if errors.Is(err, errConflict) {
		return m.findRecord(ctx, key)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.revision = next
	m.heartbeat.arrived(begun)
	m.mu.Unlock()
	m.wake()
	return nil
}

// findRecord reads the member record after its revision was not the expected one.
// Only this process writes it: either an earlier heartbeat was stored without an
// answer, or the member was expelled.
func (m *membership) findRecord(ctx context.Context, key string) error {
	found, err := m.bucket.get(ctx, key)
	if errors.Is(err, errNoMessage) {
		return errExpelled
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.revision = found.revision
	m.mu.Unlock()
	return errors.New("an earlier heartbeat arrived late")
}

// expelled ends the leases and the membership of this process, after the other members
// have removed it.
func (m *membership) expelled() {
	m.cfg.Logger.Warn("this member was expelled; it joins again if the cluster is still the same", "member", m.lastID())
	m.mu.Lock()
	m.joined = false
	m.mu.Unlock()
	m.onEnd(errExpelled)
}

// leaseTimeLeft returns how long leases remain valid without another heartbeat.
func (m *membership) leaseTimeLeft() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heartbeat.left(time.Now())
}

// beatsArrive reports whether a recent heartbeat of this member has arrived. If not, the
// bucket may be the problem, and the silence of other members proves nothing.
func (m *membership) beatsArrive(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heartbeat.fresh(now)
}

// mayLease returns the member id under which a lease may be acquired. The error says why
// no lease may be acquired now.
func (m *membership) mayLease() (id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.joined:
		return "", m.notMember()
	case m.heartbeat.left(time.Now()) <= 0:
		return "", errSilent
	}
	return m.id, nil
}

// checkID returns an error unless the process is the member with the id.
func (m *membership) checkID(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.joined || m.id != id {
		return m.notMember()
	}
	return nil
}

// notMember returns why the process is not a member. The lock is held.
func (m *membership) notMember() error { return cmp.Or(m.wrong, errExpelled) }

// wake makes the lease table check the heartbeat state.
func (m *membership) wake() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// connectionChanged is called when the connection to NATS is lost or is back.
func (m *membership) connectionChanged() {
	down := !m.c.nc.IsConnected()
	m.mu.Lock()
	m.heartbeat.down = down
	m.mu.Unlock()
	m.wake()
}

// serve makes answer receive the requests to the member. It can be called once.
func (m *membership) serve(answer journal.Answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.life.Err() != nil:
		return fmt.Errorf("serve member %s: %w", m.id, errClosed)
	case m.answer != nil:
		return fmt.Errorf("serve member %s: it is served already", m.id)
	}
	m.answer = answer
	m.requests.serve(answer)
	return nil
}

// stopServing makes the member accept no more requests.
func (m *membership) stopServing() {
	m.mu.Lock()
	requests := m.requests
	m.mu.Unlock()
	requests.close()
}

// heartbeatState says how long the other members will certainly not expel this one. It
// is not safe for concurrent use.
type heartbeatState struct {
	timing timing
	last   time.Time // when the last heartbeat that arrived was sent
	down   bool      // there is no connection
}

// arrived records that a heartbeat has arrived, which was sent at the time begun.
func (h *heartbeatState) arrived(begun time.Time) {
	if begun.After(h.last) {
		h.last = begun
	}
}

// left returns how long our leases remain valid without another heartbeat.
func (h *heartbeatState) left(now time.Time) time.Duration {
	limit := h.timing.ended
	if h.down {
		limit = h.timing.cutOff
	}
	return h.last.Add(limit).Sub(now)
}

// fresh reports whether a recent heartbeat of our own has arrived. If not, the silence
// of others proves nothing.
func (h *heartbeatState) fresh(now time.Time) bool { return now.Sub(h.last) < h.timing.fresh }
