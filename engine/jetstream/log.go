package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

var errClosed = errors.New("the log is closed")

// Log is a member of a cluster. It implements [journal.Cluster].
type Log struct {
	*backend
	created bool        // there was no cluster before
	second  *secondCopy // nil means none
	objects *objects
	end     context.CancelFunc // ends backend.life
	group   sync.WaitGroup
	close   func() error

	member   *membership // nil until the cluster is found
	view     *clusterView
	leases   *leaseTable
	requests *requester
	troubles *troubleLog
	clocks   *machineClocks
}

var _ journal.Cluster = (*Log)(nil)

// Open connects to the servers and joins the cluster, which it creates if there
// is none. It retries until the context ends, and for a minute at most. If the
// configuration is invalid or the credentials are rejected, it fails at once.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	cfg = cfg.withDefaults()
	l, err := open(ctx, cfg)
	return l, wrapf(err, "open log %s", cfg.Name)
}

func open(ctx context.Context, cfg Config) (*Log, error) {
	// Detect errors that need no server before anything is created on the servers.
	who, err := cfg.identity()
	if err != nil {
		return nil, err
	}
	second, err := openSecondCopy(cfg)
	if err = errors.Join(err, second.usable()); err != nil {
		return nil, err
	}
	c, err := dial(ctx, cfg, who)
	if err != nil {
		return nil, err
	}
	l := &Log{backend: &backend{cfg: cfg, names: names(cfg.Name), c: c}, second: second}
	l.life, l.end = context.WithCancel(context.Background())
	l.close = sync.OnceValue(l.leave)
	l.bucket = newBucket(c, l.names)
	if err := l.enter(ctx); err != nil {
		return nil, errors.Join(err, l.abandon())
	}
	return l, nil
}

// abandon undoes an Open that has failed.
func (l *Log) abandon() error {
	if l.member != nil && l.member.self() != "" {
		return l.Close()
	}
	defer l.c.nc.Close()
	if l.objects == nil {
		return nil
	}
	return l.objects.close()
}

// enter creates or finds the cluster, and becomes a member.
func (l *Log) enter(ctx context.Context) (err error) {
	if err := checkServer(l.c); err != nil {
		return err
	}
	js, err := natsjs.New(l.c.nc)
	if err != nil {
		return err
	}
	creator := &creator{c: l.c, js: js, cfg: l.cfg, names: l.names, bucket: l.bucket}
	if l.settings, err = retry.Value(ctx, opens, creator.prepare); err != nil {
		return plain(err)
	}
	l.created = creator.created
	logOrigin(l.cfg, l.settings, l.second, l.created)
	logDifferences(l.cfg, l.settings, creator.log)
	l.timing = timingOf(l.settings.LeaseTime)
	l.timing.beat = cmp.Or(l.cfg.beat, l.timing.beat)
	if l.objects, err = openObjects(l.c, l.names, l.cfg, l.second); err != nil {
		return err
	}
	if err := l.connectParts(); err != nil {
		return err
	}
	if err := opens.Do(ctx, l.member.join); err != nil {
		return plain(err)
	}
	if err := opens.Do(ctx, l.refresh); err != nil {
		return plain(err)
	}
	for _, run := range []func(){l.member.run, l.followCluster, l.leases.guard} {
		l.group.Go(run)
	}
	return nil
}

// connectParts makes the parts of the log, and subscribes to messages and events.
func (l *Log) connectParts() (err error) {
	l.troubles = newTroubleLog(l.backend)
	l.clocks = newMachineClocks(l.backend)
	l.member = newMembership(l.backend, l.troubles)
	l.member.onBeat = l.clocks.send
	l.view = newClusterView(l.backend, l.member)
	l.leases = newLeaseTable(l)
	l.member.onJoin = l.view.changes.announce
	l.member.onEnd = func(why error) {
		l.view.reassign()
		l.leases.endAll(why)
	}
	if l.requests, err = newRequester(l.backend, l.view); err != nil {
		return err
	}
	_, err = l.c.nc.Subscribe(l.names.noticeSubject(), func(m *nats.Msg) {
		if !l.clocks.receive(m) {
			l.view.changes.receive(m)
		}
	})
	if err != nil {
		return err
	}
	l.c.watch(l.member.connectionChanged)
	l.c.watch(l.view.connectionChanged)
	return nil
}

// followCluster reads the bucket, regularly and when a member has announced a change,
// and then expels silent members and releases unused shards.
func (l *Log) followCluster() {
	ticker := time.NewTicker(l.timing.beat)
	defer ticker.Stop()
	for {
		select {
		case <-l.life.Done():
			return
		case <-ticker.C:
		case <-l.view.changes.signal:
		}
		// Read again until the replica that answers has the announced change.
		ctx, cancel := context.WithTimeout(l.life, l.timing.fresh)
		err := refreshes.Do(ctx, l.refresh)
		cancel()
		if l.Err() != nil {
			return
		}
		if l.troubles.report("the state of the cluster can't be read", err); err != nil {
			// The bucket may have been restored from a backup, and then never reaches
			// the announced revision.
			l.view.changes.revision.Store(0)
			continue
		}
		l.view.expelSilent()
		l.leases.releaseUnused()
	}
}

// refresh reads the bucket once.
func (l *Log) refresh(ctx context.Context) error {
	wanted := l.view.changes.revision.Load()
	records, revision, err := l.bucket.all(ctx)
	if err != nil {
		return err
	}
	if err := l.member.confirmCluster(ctx, records); err != nil {
		return err
	}
	s, err := newClusterState(records, revision, l.settings.Shards)
	if err != nil {
		return err
	}
	if l.view.adopt(s, time.Now()) {
		l.leases.endTakenOver(s)
	}
	if revision < wanted {
		return fmt.Errorf("a replica of the bucket has revision %d, and not yet revision %d", revision, wanted)
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
	l.member.stopServing()
	err := l.c.connected()
	if err == nil {
		err = farewells.Do(context.Background(), l.member.leave)
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("leave cluster %s: %w", l.cfg.Name, err))
	}
	l.requests.close()
	_ = l.c.nc.FlushTimeout(time.Second) // sends the last answers; if that fails, the callers get an error
	l.c.nc.Close()
	return errors.Join(append(errs, l.objects.close())...)
}

// ClusterID returns the id of the cluster. A cluster that is created again under the
// same name has another id.
func (l *Log) ClusterID() string { return l.settings.ID }

// MemberName returns the name of this process; [Log.Member] returns its id.
func (l *Log) MemberName() string { return l.cfg.MemberName }

// Made reports whether Open created the cluster.
func (l *Log) Made() bool { return l.created }

// Ended returns a channel that is closed when this process can't be a member any more;
// [Log.Err] returns the reason, such as [ErrReplaced]. Close does not close the channel.
func (l *Log) Ended() <-chan struct{} { return l.member.ended }

// Err returns why the channel of [Log.Ended] is closed; nil while it is open.
func (l *Log) Err() error { return l.member.err() }

// Shards implements [journal.Cluster].
func (l *Log) Shards() int { return l.settings.Shards }

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
		return nil, fmt.Errorf("lease shard %d of %s: %w", shard, l.cfg.Name, plain(err))
	}
	return held, nil
}

// Peek implements [journal.Cluster].
func (l *Log) Peek(ctx context.Context, shard int) (journal.Reader, error) {
	r, err := l.leases.peek(ctx, shard)
	return r, wrapf(err, "peek at shard %d of %s", shard, l.cfg.Name)
}

// Serve implements [journal.Cluster].
func (l *Log) Serve(answer journal.Answer) error { return l.member.serve(answer) }

// Call implements [journal.Cluster].
func (l *Log) Call(ctx context.Context, shard int, request []byte) ([]byte, error) {
	answer, err := l.requests.callShard(ctx, shard, request)
	return answer, wrapf(err, "call shard %d of %s", shard, l.cfg.Name)
}

// Ask implements [journal.Cluster].
func (l *Log) Ask(ctx context.Context, member string, request []byte) ([]byte, error) {
	if !validMember(member) {
		return nil, fmt.Errorf("ask member %q: %w", member, journal.ErrNobody)
	}
	answer, err := l.requests.askMember(ctx, member, request)
	return answer, wrapf(err, "ask member %s", member)
}
