package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Lease implements [journal.Log]. The lease is a [journal.Shared].
func (l *Log) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	held, err := l.take(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("lease shard %d of %s: %w", shard, l.cfg.Name, plain(err))
	}
	return held, nil
}

func (l *Log) take(ctx context.Context, shard int) (_ *lease, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, err := l.reserve(shard)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.unreserve(shard)
		}
	}()
	record, err := l.claim(ctx, shard, id)
	if err != nil {
		return nil, err
	}
	l.notify(record.revision)
	// Only now: the last owner may have appended until it was replaced. And from a
	// leader that has proved to be one.
	var state logState
	log := stream{l.c, l.names.logStream(shard)}
	for a := range asks.Attempts(ctx, &err) {
		if err = log.barrier(a.Context()); err == nil {
			state, err = l.logState(a.Context(), log)
		}
	}
	if err != nil {
		return nil, err // the next look finds the shard without a user, and lets go of it
	}
	held := newLease(l, shard, record, state)
	return held, l.keep(held, id)
}

// reserve notes that a lease is being taken, so that only one is.
func (l *Log) reserve(shard int) (id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch _, used := l.leases[shard]; {
	case shard < 0 || shard >= l.settings.Shards:
		return "", fmt.Errorf("there is no such shard: the cluster has %d", l.settings.Shards)
	case l.closed:
		return "", errClosed
	case used:
		return "", fmt.Errorf("%w: this process has it", journal.ErrLocked)
	case !l.joined:
		return "", l.notMember()
	case l.pulse.left(time.Now()) <= 0:
		return "", errSilent
	}
	l.leases[shard] = nil
	return l.id, nil
}

func (l *Log) unreserve(shard int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, shard)
}

// keep notes a lease that holds, unless the member has ended meanwhile.
func (l *Log) keep(held *lease, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errClosed
	case !l.joined || l.id != id:
		return l.notMember()
	}
	l.leases[held.shard] = held
	l.group.Go(held.sweep)
	return nil
}

// forget removes a lease that has ended.
func (l *Log) forget(held *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leases[held.shard] == held {
		delete(l.leases, held.shard)
	}
}

// claim makes us the owner in the bucket.
func (l *Log) claim(ctx context.Context, shard int, id string) (r shardRecord, err error) {
	var tried uint64 // the epoch that we may have stored
	for a := range asks.Attempts(ctx, &err) {
		r, err = l.shardRecord(a.Context(), shard)
		if err != nil || tried != 0 && r.Owner == id && r.Epoch == tried {
			continue // it had been stored, and the answer was lost
		}
		r, err = l.claimable(a.Context(), shard, id, r)
		if err != nil {
			continue
		}
		tried = r.Epoch
		r.revision, err = l.store(a.Context(), shard, r)
	}
	return r, err
}

// errChanged says that a record is not the one that it was. It is not an answer:
// whoever wants to change it looks again.
var errChanged = errors.New("the record has changed meanwhile")

// store writes a record of a shard in place of the one with its revision.
func (l *Log) store(ctx context.Context, shard int, r shardRecord) (revision uint64, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	revision, err = l.bucket.put(ctx, shardKey(shard), text, r.revision)
	if errors.Is(err, errConflict) {
		return 0, errChanged
	}
	return revision, err
}

// replace is store for a record that was read or written a while ago. Its revision
// may be that of something else in the bucket of another cluster, made anew under
// this name, so its owner is looked at as well: no two members have one id.
func (l *Log) replace(ctx context.Context, shard int, old, next shardRecord) (revision uint64, err error) {
	found, err := l.shardRecord(ctx, shard)
	if err != nil {
		return 0, err
	}
	if found.revision != old.revision || found.Owner != old.Owner || found.Epoch != old.Epoch {
		return 0, errChanged
	}
	return l.store(ctx, shard, next)
}

// claimable returns what to write to become the owner.
func (l *Log) claimable(ctx context.Context, shard int, id string, r shardRecord) (shardRecord, error) {
	if err := l.free(ctx, id, r); err != nil {
		return r, err
	}
	s := stream{l.c, l.names.logStream(shard)}
	state, err := l.logStateSince(ctx, s, r.Last)
	if err != nil {
		return r, err
	}
	epoch, err := lastEpoch(ctx, s, state)
	if err != nil {
		return r, err
	}
	return shardRecord{Owner: id, Epoch: 1 + max(r.Epoch, epoch), Last: state.last, revision: r.revision}, nil
}

// free says who has the shard.
func (l *Log) free(ctx context.Context, id string, r shardRecord) error {
	if r.Owner == "" || r.Owner == id {
		return nil
	}
	v, _ := l.current()
	if m, ok := v.members[r.Owner]; ok {
		return fmt.Errorf("%w: member %s (%s) has it", journal.ErrLocked, r.Owner, m.Name)
	}
	// We may not have heard of it yet.
	_, err := l.bucket.get(ctx, memberKey(r.Owner))
	if err == nil {
		return fmt.Errorf("%w: member %s has it", journal.ErrLocked, r.Owner)
	}
	if errors.Is(err, errNoMessage) {
		return nil
	}
	return err
}

// shardRecord returns what the bucket says of a shard; nothing means no owner.
func (l *Log) shardRecord(ctx context.Context, shard int) (r shardRecord, err error) {
	found, err := l.bucket.get(ctx, shardKey(shard))
	if errors.Is(err, errNoMessage) {
		return shardRecord{revision: found.revision}, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(found.value, &r); err != nil {
		return r, fmt.Errorf("%w: key %s of the bucket: %w", journal.ErrDamaged, found.key, err)
	}
	r.revision = found.revision
	return r, nil
}
