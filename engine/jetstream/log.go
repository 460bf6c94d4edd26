package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// Log is a member of a cluster. It implements [journal.Cluster].
type Log struct {
	backend *backend
	objects *objects
	end     context.CancelFunc // ends backend.life
	group   sync.WaitGroup
	close   func() error

	clocks   *machineClocks
	member   *membership
	view     *clusterView
	leases   *leaseTable
	follower *follower
	requests *requester
}

var _ journal.Cluster = (*Log)(nil)

// newLog makes the parts of a log, and subscribes to messages and events.
func newLog(b *backend, objects *objects) (l *Log, err error) {
	l = &Log{backend: b, objects: objects}
	b.life, l.end = context.WithCancel(context.Background())
	l.close = sync.OnceValue(l.leave)
	troubles := &troubleLog{backend: b, present: map[string]bool{}}
	l.clocks = newMachineClocks(b)
	l.member = newMembership(b, troubles)
	l.member.onBeat = l.clocks.send
	l.view = newClusterView(b, l.member)
	l.leases = &leaseTable{
		backend: b, member: l.member, view: l.view, objects: objects, clocks: l.clocks, group: &l.group, leases: map[int]*lease{},
	}
	l.follower = &follower{b, l.member, l.view, l.leases, troubles}
	l.member.onJoin = l.view.changes.announce
	l.member.onEnd = func(why error) {
		l.view.reassign()
		l.leases.endAll(why)
	}
	if l.requests, err = newRequester(b, l.view); err != nil {
		return nil, err
	}
	_, err = b.c.nc.Subscribe(b.names.noticeSubject(), func(m *nats.Msg) {
		if !l.clocks.receive(m) {
			l.view.changes.receive(m)
		}
	})
	b.c.watch(l.member.connectionChanged)
	b.c.watch(l.view.connectionChanged)
	return l, err
}

// join becomes a member of the cluster, and starts the goroutines of the log. A log that is ReadOnly only
// reads the state of the cluster.
func (l *Log) join(ctx context.Context) error {
	if l.backend.cfg.ReadOnly {
		l.member.heartbeat.last = time.Unix(1<<40, 0) // none is sent, and none is missing
		return plain(opens.Do(ctx, l.follower.refresh))
	}
	for _, do := range []func(context.Context) error{l.member.join, l.follower.refresh} {
		if err := opens.Do(ctx, do); err != nil {
			return plain(err)
		}
	}
	for _, run := range []func(){l.member.run, l.follower.run, l.leases.guard} {
		l.group.Go(run)
	}
	return nil
}

// Close implements [journal.Log]. It releases all leases and leaves the cluster. If
// the servers can't be reached, the other members expel this one later.
func (l *Log) Close() error { return l.close() }

func (l *Log) leave() error {
	l.leases.close()
	errs := []error{l.leases.releaseAll()}
	l.end()
	l.group.Wait()
	if !l.backend.cfg.ReadOnly {
		l.member.stopServing()
		err := l.backend.c.connected()
		if err == nil {
			err = farewells.Do(context.Background(), l.member.leave)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("leave cluster %s: %w", l.backend.cfg.Name, err))
		}
	}
	_ = l.requests.sub.Unsubscribe()             // the connection is closed next
	_ = l.backend.c.nc.FlushTimeout(time.Second) // sends the last answers; if that fails, the callers get an error
	l.backend.c.nc.Close()
	return errors.Join(append(errs, l.objects.cache.close())...)
}

// ClusterID returns the id of the cluster. A cluster that is created again under the
// same name has another id.
func (l *Log) ClusterID() string { return l.backend.settings.ID }

// MemberName returns the name of this process; [Log.Member] returns its id.
func (l *Log) MemberName() string { return l.backend.cfg.MemberName }

// Made reports whether Open created the cluster.
func (l *Log) Made() bool { return l.backend.created }

// Ended returns a channel that is closed when this process can't be a member any more;
// [Log.Err] returns the reason, such as [ErrReplaced]. Close does not close the channel.
func (l *Log) Ended() <-chan struct{} { return l.member.ended }

// Err returns why the channel of [Log.Ended] is closed; nil while it is open.
func (l *Log) Err() error { return l.member.err() }

// Shards implements [journal.Cluster].
func (l *Log) Shards() int { return l.backend.settings.Shards }

// Member implements [journal.Cluster].
func (l *Log) Member() string { return l.member.lastID() }

// Members implements [journal.Cluster].
func (l *Log) Members() []string {
	s, _ := l.view.current()
	return slices.Sorted(slices.Values(s.ids(l.member.self())))
}

// Behind implements [journal.Cluster].
func (l *Log) Behind(format int) []journal.Member { return l.view.behind(format) }

// Assigned implements [journal.Cluster].
func (l *Log) Assigned() (shards []int, changed <-chan struct{}) { return l.view.assignedShards() }

// Lease implements [journal.Log]. The lease is a [journal.Shared].
func (l *Log) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	held, err := l.leases.acquire(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("lease shard %d of %s: %w", shard, l.backend.cfg.Name, plain(err))
	}
	return held, nil
}

// Peek implements [journal.Cluster].
func (l *Log) Peek(ctx context.Context, shard int) (journal.Reader, error) {
	r, err := l.leases.peek(ctx, shard)
	return r, disk.Wrapf(err, "peek at shard %d of %s", shard, l.backend.cfg.Name)
}

// Settle implements [journal.Cluster].
func (l *Log) Settle(ctx context.Context, name, value string) (settled string, err error) {
	if name == "" || len(name) > 200 {
		return "", fmt.Errorf("settle %q: the name must have 1 to 200 characters", name)
	}
	for a := range asks.Attempts(ctx, &err) {
		if err = l.backend.checkOpen(); err == nil {
			settled, err = l.backend.bucket.putIfAbsent(a.Context(), settledKey(name), value)
		}
	}
	return settled, disk.Wrapf(plain(err), "settle %q", name)
}

// Serve implements [journal.Cluster].
func (l *Log) Serve(answer journal.Answer) error { return l.member.serve(answer) }

// Call implements [journal.Cluster].
func (l *Log) Call(ctx context.Context, shard int, request []byte) ([]byte, error) {
	answer, err := l.requests.callShard(ctx, shard, request)
	return answer, disk.Wrapf(err, "call shard %d of %s", shard, l.backend.cfg.Name)
}

// Ask implements [journal.Cluster].
func (l *Log) Ask(ctx context.Context, member string, request []byte) ([]byte, error) {
	if !validMember(member) {
		return nil, fmt.Errorf("ask member %q: %w", member, journal.ErrNobody)
	}
	answer, err := l.requests.askMember(ctx, member, request)
	return answer, disk.Wrapf(err, "ask member %s", member)
}

// Status implements [journal.Cluster].
func (l *Log) Status(ctx context.Context) (s journal.Status, err error) {
	for a := range asks.Attempts(ctx, &err) {
		if err = l.backend.checkOpen(); err == nil {
			err = l.follower.refresh(a.Context())
		}
	}
	if err != nil {
		return s, fmt.Errorf("status of %s: %w", l.backend.cfg.Name, plain(err))
	}
	state, _ := l.view.current()
	s.Members, s.Shards = l.view.members(state), make([]journal.Shard, len(state.shards))
	inParallel(len(state.shards), func(n int) { s.Shards[n] = l.shardStatus(ctx, n, state.shards[n]) })
	return s, ctx.Err()
}

// shardStatus returns the status of shard n, whose record is r.
func (l *Log) shardStatus(ctx context.Context, n int, r shardRecord) journal.Shard {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	s := journal.Shard{Number: n, Owner: r.Owner, Epoch: r.Epoch}
	state, err := l.backend.shardLog(n).state(ctx)
	if err != nil {
		s.Error = l.backend.cfg.redact(err.Error())
		return s
	}
	s.First, s.Last, s.Bytes, s.Lag = state.first, state.last, state.bytes, state.lag
	return s
}

// Check is the function [Check] for a log that is open.
func (l *Log) Check(ctx context.Context) ([]journal.Finding, error) {
	b := *l.backend // a copy, because the examiner reads the settings again
	if err := b.checkOpen(); err != nil {
		return nil, fmt.Errorf("check log %s: %w", b.cfg.Name, err)
	}
	x := &examiner{findings: findings{redact: b.cfg.redact}, backend: &b, second: l.objects.second}
	found, err := x.examine(ctx)
	return found, disk.Wrapf(err, "check log %s", b.cfg.Name)
}

// errNotExpelled means that other members have neither sent a heartbeat nor been expelled.
var errNotExpelled = errors.New("they have sent no heartbeat for longer than the lease time, but can't be expelled")

// expelTime is how long the expulsion of a member may take after its lease time.
const expelTime = 30 * time.Second

// AwaitAlone waits until this process is the only member, and returns nil then. The record of a
// process that was killed stays until its lease time is over, and this process expels it. If
// another member sends heartbeats or joins meanwhile, AwaitAlone returns the other members. It calls
// waiting about every heartbeat, with the other members and how long it still waits, at most. A log that
// is ReadOnly expels none: it returns nil when a member would expel them.
func (l *Log) AwaitAlone(ctx context.Context, waiting func(others []journal.Member, left time.Duration)) (others []journal.Member, err error) {
	ticker := time.NewTicker(l.backend.timing.beat)
	defer ticker.Stop()
	var beats map[string]uint64 // of the other members at the first look
	for begun := time.Now(); ; {
		for a := range asks.Attempts(ctx, &err) {
			err = l.follower.refresh(a.Context())
		}
		if err != nil {
			return nil, plain(err)
		}
		state, _ := l.view.current()
		others = slices.DeleteFunc(l.view.members(state), func(m journal.Member) bool { return m.ID == l.Member() })
		if beats == nil {
			beats = map[string]uint64{}
			for _, m := range others {
				beats[m.ID] = state.members[m.ID].Beat
			}
		}
		alive := slices.ContainsFunc(others, func(m journal.Member) bool {
			first, known := beats[m.ID]
			return !known || state.members[m.ID].Beat > first+1 // a process that was killed may have sent one more
		})
		left := l.backend.timing.expelAt - time.Since(begun)
		switch {
		case alive, len(others) == 0:
			return others, nil
		case left < 0 && l.backend.cfg.ReadOnly:
			return nil, nil
		case left < -expelTime:
			return others, errNotExpelled
		}
		waiting(others, max(left, 0))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return others, context.Cause(ctx)
		}
	}
}
