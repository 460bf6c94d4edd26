package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// leaseTable holds the leases of this process. It acquires them, and ends them when the
// process can't be sure any more that it is a member, or when another member has taken
// over.
type leaseTable struct {
	*backend
	member  *membership
	view    *clusterView
	objects *objects
	clocks  *machineClocks
	group   *sync.WaitGroup // waits for the goroutines of the log

	mu     sync.Mutex
	leases map[int]*lease // by shard; nil while the lease is being acquired
	closed bool
}

// acquire makes this process the owner of a shard.
func (t *leaseTable) acquire(ctx context.Context, shard int) (_ *lease, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, err := t.reserve(shard)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.unreserve(shard)
		}
	}()
	record, err := t.claim(ctx, shard, id)
	if err != nil {
		return nil, err
	}
	t.notify(record.revision)
	// The last owner may have appended until we replaced it, so read the state only now.
	// The barrier makes sure that the answer does not come from an old leader.
	var state logState
	log := t.shardLog(shard)
	for a := range asks.Attempts(ctx, &err) {
		if err = log.barrier(a.Context()); err == nil {
			state, err = log.state(a.Context())
		}
	}
	if err != nil {
		return nil, err // releaseUnused will release the shard
	}
	held := t.newLease(shard, record, state)
	return held, t.add(held, id)
}

// peek returns a reader of a shard that another member may own.
func (t *leaseTable) peek(ctx context.Context, shard int) (_ journal.Reader, err error) {
	if err := t.checkShard(shard); err != nil {
		return nil, err
	}
	var state logState
	for a := range asks.Attempts(ctx, &err) {
		state, err = t.shardLog(shard).state(a.Context())
	}
	if err != nil {
		return nil, plain(err)
	}
	return &peek{t.newLease(shard, shardRecord{}, state)}, nil
}

// peek reads a shard that another member may own. Its Reader is a lease that is not in
// the table; peek hides the methods of the lease that change something.
type peek struct{ journal.Reader }

// newLease returns the lease of an owner, with the record r. s is the state of the log now.
func (t *leaseTable) newLease(shard int, r shardRecord, s logState) *lease {
	own := &ownership{
		backend: t.backend, member: t.member, onEnd: t.remove, shard: shard, epoch: r.Epoch, record: r, changing: make(chan struct{}, 1),
	}
	own.life, own.end = context.WithCancelCause(context.Background())
	log := &leaseLog{own: own, stream: t.shardLog(shard), subject: t.names.logSubject(shard), appending: make(chan struct{}, 1)}
	log.extend(s)
	l := &lease{leaseLog: log, own: own, blobs: &leaseBlobs{own: own, log: log, objects: t.objects}, clocks: t.clocks}
	l.release = sync.OnceValue(l.giveUp)
	return l
}

// reserve marks a shard whose lease is being acquired, so that no other goroutine
// acquires it at the same time. It returns the member id under which to acquire the
// lease.
func (t *leaseTable) reserve(shard int) (id string, err error) {
	if err := t.checkShard(shard); err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return "", errClosed
	}
	if _, used := t.leases[shard]; used {
		return "", fmt.Errorf("%w: this process has leased it already", journal.ErrLocked)
	}
	if id, err = t.member.mayLease(); err != nil {
		return "", err
	}
	t.leases[shard] = nil
	return id, nil
}

func (t *leaseTable) unreserve(shard int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.leases, shard)
}

// add adds a lease that was acquired under the member id, unless the process is a member
// under another id by now. It holds the lock during that check: endAll either sees the
// lease, or the check fails.
func (t *leaseTable) add(held *lease, id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errClosed
	}
	if err := t.member.checkID(id); err != nil {
		return err
	}
	t.leases[held.own.shard] = held
	t.group.Go(held.blobs.sweep)
	return nil
}

// remove removes the lease of an ownership that has ended.
func (t *leaseTable) remove(ended *ownership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held := t.leases[ended.shard]; held != nil && held.own == ended {
		delete(t.leases, ended.shard)
	}
}

// claim writes this member into the record of the shard.
func (t *leaseTable) claim(ctx context.Context, shard int, id string) (r shardRecord, err error) {
	var tried uint64 // epoch of a record that may have been stored although its answer was lost
	for a := range asks.Attempts(ctx, &err) {
		r, err = t.shardRecord(a.Context(), shard)
		if err != nil || tried != 0 && r.Owner == id && r.Epoch == tried {
			continue // on an error; or the record was stored, and only its answer was lost
		}
		r, err = t.nextRecord(a.Context(), shard, id, r)
		if err != nil {
			continue
		}
		tried = r.Epoch
		r.revision, err = t.storeShard(a.Context(), shard, r)
	}
	return r, err
}

// nextRecord returns the record that makes this member the owner of the shard. r is the
// record that it replaces.
func (t *leaseTable) nextRecord(ctx context.Context, shard int, id string, r shardRecord) (shardRecord, error) {
	if err := t.checkFree(ctx, id, r); err != nil {
		return r, err
	}
	s := t.shardLog(shard)
	state, err := s.stateSince(ctx, r.Last)
	if loss, ok := errors.AsType[*journal.LossError](err); ok && t.cfg.AcceptLoss {
		loss.At, loss.Why = time.Now(), journal.WhyAccepted
		err = r.addLoss(loss.Loss)
	}
	if err != nil {
		return r, err
	}
	epoch, err := s.lastEpoch(ctx, state)
	if err != nil {
		return r, err
	}
	return shardRecord{Owner: id, Epoch: 1 + max(r.Epoch, epoch), Last: state.last, Lost: r.Lost, revision: r.revision}, nil
}

// checkFree returns an error if another member owns the shard.
func (t *leaseTable) checkFree(ctx context.Context, id string, r shardRecord) error {
	if r.Owner == "" || r.Owner == id {
		return nil
	}
	s, _ := t.view.current()
	if m, ok := s.members[r.Owner]; ok {
		return fmt.Errorf("%w: member %s (%s) has it", journal.ErrLocked, r.Owner, m.Name)
	}
	// The owner may have joined since the state was read.
	_, err := t.bucket.get(ctx, memberKey(r.Owner))
	if err == nil {
		return fmt.Errorf("%w: member %s has it", journal.ErrLocked, r.Owner)
	}
	if errors.Is(err, errNoMessage) {
		return nil
	}
	return err
}

// held returns the acquired leases.
func (t *leaseTable) held() (list []*lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, held := range t.leases {
		if held != nil {
			list = append(list, held)
		}
	}
	return list
}

// guard ends all leases when this member sent no heartbeat for so long that the others
// may expel it.
func (t *leaseTable) guard() {
	timer := time.NewTimer(t.timing.ended)
	defer timer.Stop()
	for {
		left := t.member.leaseTimeLeft()
		if left <= 0 {
			t.endAll(errSilent)
			left = t.timing.ended
		}
		timer.Reset(left)
		select {
		case <-t.life.Done():
			return
		case <-timer.C:
		case <-t.member.woken:
		}
	}
}

// endAll ends all leases in this process. It does not change the bucket.
func (t *leaseTable) endAll(why error) {
	for _, held := range t.held() {
		held.own.lose(why)
	}
}

// endTakenOver ends the leases of shards that belong to another owner.
func (t *leaseTable) endTakenOver(s *clusterState) {
	for _, held := range t.held() {
		if held.own.takenOver(s.shards[held.own.shard], s.revision) {
			held.own.lose(errTakenOver)
		}
	}
}

// releaseUnused releases the shards that this member owns in the bucket without having a
// lease: a lease has ended while the bucket could not be written, or was acquired only
// in part.
func (t *leaseTable) releaseUnused() {
	s, _ := t.view.current()
	self := t.member.self()
	if self == "" {
		return
	}
	var unused []int
	t.mu.Lock()
	for n, r := range s.shards {
		if _, used := t.leases[n]; r.Owner == self && !used {
			unused = append(unused, n)
		}
	}
	t.mu.Unlock()
	for _, n := range unused {
		ctx, cancel := context.WithTimeout(t.life, t.timing.fresh)
		err := t.releaseShard(ctx, n, s.shards[n])
		cancel()
		if err != nil {
			return // the next read of the bucket tries again
		}
	}
}

// close makes the table acquire no more leases.
func (t *leaseTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// releaseAll releases all leases, at the same time.
func (t *leaseTable) releaseAll() error {
	var group sync.WaitGroup
	held := t.held()
	errs := make([]error, len(held))
	for i, l := range held {
		group.Go(func() { errs[i] = l.Release() })
	}
	group.Wait()
	return errors.Join(errs...)
}
