package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// notice is the newest change of the bucket that we were told of.
type notice struct {
	mu       sync.Mutex
	revision uint64
	signal   chan struct{} // has one when there is something to look for
}

// tell notes a change; a revision of 0 is one that is not known.
func (n *notice) tell(revision uint64) {
	n.mu.Lock()
	n.revision = max(n.revision, revision)
	n.mu.Unlock()
	select {
	case n.signal <- struct{}{}:
	default:
	}
}

// forget gives up waiting for a change: the bucket may have been restored from a
// backup, and never get there.
func (n *notice) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revision = 0
}

func (n *notice) newest() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revision
}

// notify tells all members, also ourselves, that the bucket has changed. If it
// gets lost, they find out when they look the next time.
func (l *Log) notify(revision uint64) {
	_ = l.c.nc.Publish(l.names.noticeSubject(), strconv.AppendUint(nil, revision, 10))
}

func (l *Log) noticed(m *nats.Msg) {
	revision, err := strconv.ParseUint(string(m.Data), 10, 64)
	if err == nil {
		l.wanted.tell(revision)
	}
}

// looks reads the bucket, now and then and when somebody has changed it, and does
// what follows from it.
func (l *Log) looks() {
	ticker := time.NewTicker(l.timing.beat)
	defer ticker.Stop()
	for {
		select {
		case <-l.life.Done():
			return
		case <-ticker.C:
		case <-l.wanted.signal:
		}
		// A replica may be behind what we were told of.
		ctx, cancel := context.WithTimeout(l.life, l.timing.fresh)
		err := refreshes.Do(ctx, l.refresh)
		cancel()
		if l.Err() != nil {
			return
		}
		if l.trouble("the state of the cluster can't be read", err); err != nil {
			l.wanted.forget()
			continue
		}
		l.expelSilent()
		l.letGoOfRest()
	}
}

// refresh reads the bucket once.
func (l *Log) refresh(ctx context.Context) error {
	wanted := l.wanted.newest()
	records, revision, err := l.bucket.all(ctx)
	if err != nil {
		return err
	}
	if err := l.recognise(ctx, records); err != nil {
		return err
	}
	v, err := newView(records, revision, l.settings.Shards)
	if err != nil {
		return err
	}
	l.adopt(v, time.Now())
	if revision < wanted {
		return fmt.Errorf("a replica of the bucket is at %d and not yet at %d", revision, wanted)
	}
	return nil
}

// adopt makes the view the present one, unless it is older. If there are only
// older ones for long, the bucket was restored from a backup.
func (l *Log) adopt(v *view, now time.Time) {
	l.mu.Lock()
	if l.view != nil && v.revision < l.view.revision && now.Sub(l.looked) < l.timing.ended {
		l.mu.Unlock()
		return
	}
	old := l.view
	l.view = v
	l.roster.see(v.members, now)
	if !l.pulse.fresh(now) || now.Sub(l.looked) > l.timing.fresh {
		l.roster.restart(now)
	}
	l.looked = now
	if old == nil || !old.same(v) {
		close(l.viewed)
		l.viewed = make(chan struct{})
		l.assign()
	}
	var taken []*lease
	for n, held := range l.leases {
		if held != nil && held.takenOver(v.shards[n], v.revision) {
			taken = append(taken, held)
		}
	}
	l.mu.Unlock()
	for _, held := range taken {
		held.lose(errTakenOver)
	}
}

// assign works out what is assigned to us. The lock is held.
func (l *Log) assign() {
	var assigned []int
	if l.view != nil {
		assigned = l.view.assigned(l.self())
	}
	if slices.Equal(assigned, l.assigned) {
		return
	}
	l.assigned = assigned
	close(l.announced)
	l.announced = make(chan struct{})
}

// Assigned implements [journal.Cluster].
func (l *Log) Assigned() (shards []int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.assigned), l.announced
}

// Members implements [journal.Cluster].
func (l *Log) Members() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.view.ids(l.self())))
}

// self returns our id, or nothing while we are no member. The lock is held.
func (l *Log) self() string {
	if !l.joined {
		return ""
	}
	return l.id
}

// current returns the view, and a channel that is closed when there is another.
func (l *Log) current() (*view, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view, l.viewed
}

// expelSilent removes members that are dead, as far as anybody can tell. One that
// has given a sign of life which we have not seen is protected by its revision.
func (l *Log) expelSilent() {
	now := time.Now()
	l.mu.Lock()
	quiet, dead := l.roster.silent(now, l.timing.gone), l.roster.silent(now, l.timing.expelAt)
	self, members := l.id, l.view.members
	l.mu.Unlock()
	var group sync.WaitGroup // one that hangs must not hold up the others
	for _, id := range quiet {
		if id != self {
			group.Go(func() { l.expel(id, members[id], slices.Contains(dead, id)) })
		}
	}
	group.Wait()
}

// expel removes a member if it is dead, or if its process is gone.
func (l *Log) expel(id string, m memberRecord, dead bool) {
	if !dead && !l.vanished(id) {
		return
	}
	ctx, cancel := context.WithTimeout(l.life, l.timing.fresh)
	defer cancel()
	if err := l.bucket.remove(ctx, memberKey(id), m.revision); err != nil {
		return // it has given a sign of life, or the next look finds it again
	}
	l.cfg.Logger.Warn("a member is silent; it was expelled", "member", id, "name", m.Name)
	l.notify(0)
}

// vanished reports whether the member's process has no connection to NATS.
func (l *Log) vanished(id string) bool {
	ctx, cancel := context.WithTimeout(l.life, l.timing.beat/2)
	defer cancel()
	_, err := l.c.nc.RequestMsgWithContext(ctx, pingMessage(l.names.memberSubject(id)))
	return errors.Is(err, nats.ErrNoResponders)
}

// letGoOfRest releases shards that are ours and that nobody here uses: their lease
// ended when the bucket could not be told.
func (l *Log) letGoOfRest() {
	l.mu.Lock()
	self, v := l.id, l.view
	var rest []int
	for n, r := range v.shards {
		if _, used := l.leases[n]; r.Owner == self && !used && l.joined {
			rest = append(rest, n)
		}
	}
	l.mu.Unlock()
	for _, n := range rest {
		ctx, cancel := context.WithTimeout(l.life, l.timing.fresh)
		err := l.letGo(ctx, n, v.shards[n])
		cancel()
		if err != nil {
			return // the next look finds it again
		}
	}
}

// letGo writes that nobody owns the shard, if the record is still the one given.
func (l *Log) letGo(ctx context.Context, n int, r shardRecord) error {
	revision, err := l.replace(ctx, n, r, shardRecord{Epoch: r.Epoch, Last: r.Last, revision: r.revision})
	if errors.Is(err, errChanged) {
		return nil
	}
	if err == nil {
		l.notify(revision)
	}
	return err
}
