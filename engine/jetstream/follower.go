package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// follower keeps the view of the cluster up to date, and does what follows from it: it
// expels silent members, and ends and releases leases.
type follower struct {
	*backend
	member   *membership
	view     *clusterView
	leases   *leaseTable
	troubles *troubleLog
}

// run reads the bucket, regularly and when a member has announced a change,
// and then expels silent members and releases unused shards.
func (f *follower) run() {
	ticker := time.NewTicker(f.timing.beat)
	defer ticker.Stop()
	for {
		select {
		case <-f.life.Done():
			return
		case <-ticker.C:
		case <-f.view.changes.signal:
		}
		// Read again until the replica that answers has the announced change.
		ctx, cancel := context.WithTimeout(f.life, f.timing.fresh)
		err := refreshes.Do(ctx, f.refresh)
		cancel()
		if f.member.err() != nil {
			return
		}
		if f.troubles.report("the state of the cluster can't be read", err); err != nil {
			// The bucket may have been restored from a backup, and then never reaches
			// the announced revision.
			f.view.changes.revision.Store(0)
			continue
		}
		f.expelSilent()
		f.leases.releaseUnused()
	}
}

// refresh reads the bucket once.
func (f *follower) refresh(ctx context.Context) error {
	wanted := f.view.changes.revision.Load()
	records, revision, err := f.bucket.all(ctx)
	if err != nil {
		return err
	}
	if err := f.member.endIfReplaced(f.confirmCluster(ctx, records)); err != nil {
		return err
	}
	s, err := newClusterState(records, revision, f.settings.Shards)
	if err != nil {
		return err
	}
	if f.view.adopt(s, time.Now()) {
		f.leases.endTakenOver(s)
	}
	if revision < wanted {
		return fmt.Errorf("a replica of the bucket has revision %d, and not yet revision %d", revision, wanted)
	}
	return nil
}

// expelSilent removes members that seem to be dead. If a member has sent a heartbeat
// that this process has not seen yet, its record has another revision, and the removal
// fails.
func (f *follower) expelSilent() {
	members, quiet, dead := f.view.silent(time.Now())
	self := f.member.lastID()
	var group sync.WaitGroup // a request that hangs must not delay the others
	for _, id := range quiet {
		if id != self {
			group.Go(func() { f.expel(id, members[id], slices.Contains(dead, id)) })
		}
	}
	group.Wait()
}

// expel removes a member. Unless dead is true, it does so only if the process of the
// member has no connection to NATS.
func (f *follower) expel(id string, m memberRecord, dead bool) {
	if !dead && !f.disconnected(id) {
		return
	}
	ctx, cancel := context.WithTimeout(f.life, f.timing.fresh)
	defer cancel()
	if err := f.bucket.remove(ctx, memberKey(id), m.revision); err != nil {
		return // the member has sent a heartbeat, or the next read of the bucket tries again
	}
	f.cfg.Logger.Warn("a member sent no heartbeat and was expelled", "member", id, "name", m.Name)
	f.notify(0)
}

// disconnected reports whether the member's process has no connection to NATS.
func (f *follower) disconnected(id string) bool {
	ctx, cancel := context.WithTimeout(f.life, f.timing.beat/2)
	defer cancel()
	ping := &nats.Msg{Subject: f.names.memberSubject(id), Header: nats.Header{pingHeader: {"1"}}}
	_, err := f.c.nc.RequestMsgWithContext(ctx, ping)
	return errors.Is(err, nats.ErrNoResponders)
}
