package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// backend has what all parts of a [Log] share: the configuration, the connection and the
// bucket of one cluster. Its fields do not change after [Open].
type backend struct {
	cfg      Config
	names    names
	settings settings
	created  bool // there was no cluster before
	timing   timing
	c        *conn
	bucket   bucket
	life     context.Context //nolint:containedctx // ends when the log is closed
}

// statusTime is how long the status waits for a stream.
const statusTime = 3 * time.Second

// checkOpen returns an error if the log is closed.
func (b *backend) checkOpen() error {
	if b.life.Err() != nil {
		return errClosed
	}
	return nil
}

// checkShard returns an error if the cluster has no such shard.
func (b *backend) checkShard(n int) error {
	if n < 0 || n >= b.settings.Shards {
		return fmt.Errorf("there is no such shard: the cluster has the shards 0 to %d", b.settings.Shards-1)
	}
	return nil
}

// shardLog returns the stream with the log of a shard.
func (b *backend) shardLog(n int) logStream {
	return logStream{stream{b.c, b.names.logStream(n)}, b.settings.ID}
}

// notify tells all members, this one included, that the bucket has changed. revision is
// the revision of the change, or 0 if it is not known. A member that misses the message
// sees the change when it reads the bucket the next time.
func (b *backend) notify(revision uint64) {
	_ = b.c.nc.Publish(b.names.noticeSubject(), strconv.AppendUint(nil, revision, 10))
}

// shardRecord returns the record of a shard. A shard without one has no owner.
func (b *backend) shardRecord(ctx context.Context, shard int) (r shardRecord, err error) {
	r.revision, err = b.bucket.getJSON(ctx, shardKey(shard), &r)
	if errors.Is(err, errNoMessage) {
		err = nil
	}
	return r, err
}

// storeShard replaces the record of a shard, if the bucket still has r.revision. It
// returns the new revision, or errChanged.
func (b *backend) storeShard(ctx context.Context, shard int, r shardRecord) (revision uint64, err error) {
	revision, err = b.bucket.putJSON(ctx, shardKey(shard), r, r.revision)
	if errors.Is(err, errConflict) {
		return 0, errChanged
	}
	return revision, err
}

// replaceShard is storeShard for a caller that read or wrote the record old a while ago.
// In that time the cluster may have been deleted and created again under the same name,
// and the new bucket may have the same revisions. So replaceShard also compares the
// owner, whose id no other member ever has.
func (b *backend) replaceShard(ctx context.Context, shard int, old, next shardRecord) (revision uint64, err error) {
	found, err := b.shardRecord(ctx, shard)
	if err != nil {
		return 0, err
	}
	if found.revision != old.revision || found.Owner != old.Owner || found.Epoch != old.Epoch {
		return 0, errChanged
	}
	return b.storeShard(ctx, shard, next)
}

// releaseShard removes the owner from the record of a shard, if the record is still
// the one given.
func (b *backend) releaseShard(ctx context.Context, shard int, r shardRecord) error {
	revision, err := b.replaceShard(ctx, shard, r, shardRecord{Epoch: r.Epoch, Last: r.Last, Lost: r.Lost, revision: r.revision})
	if errors.Is(err, errChanged) {
		return nil
	}
	if err == nil {
		b.notify(revision)
	}
	return err
}

// confirmCluster fails if the records belong to another cluster than the one that
// the process has joined. A server that was away may still have the bucket of an
// earlier cluster, so the leader of the bucket decides.
func (b *backend) confirmCluster(ctx context.Context, records []record) error {
	for _, r := range records {
		if r.key != settingsKey {
			continue
		}
		var s settings
		if err := json.Unmarshal(r.value, &s); err == nil && s.ID == b.settings.ID {
			return nil
		}
		if err := b.confirmSettings(ctx); err != nil {
			return err
		}
		return fmt.Errorf("a replica of bucket %s is of another cluster", b.bucket.name)
	}
	return nil // the replica is behind and has no settings yet: that proves nothing
}

// confirmSettings asks the leader of the bucket whether the cluster is still the one
// that the process has joined. If it is another one, the error is [ErrReplaced].
func (b *backend) confirmSettings(ctx context.Context) error {
	if err := b.bucket.barrier(ctx); err != nil {
		return err
	}
	s, _, err := b.bucket.settings(ctx)
	if errors.Is(err, errNoMessage) {
		return fmt.Errorf("bucket %s has no settings yet: the member that creates it has not written them", b.bucket.name)
	}
	if err != nil {
		return err
	}
	if s.ID == b.settings.ID {
		return nil
	}
	return fmt.Errorf("%w: the streams of cluster %s, created at %s, are gone, and a new cluster was created at %s. "+
		"Start this process again, and it joins the new one, which does not have the runs of the old one: %s",
		ErrReplaced, b.cfg.Name, stamp(b.settings.Created), stamp(s.Created), restoring)
}

func stamp(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }

// troubleLog logs a problem once when it begins, and once when it is over. Operations
// that are repeated every second would fill the log otherwise.
type troubleLog struct {
	*backend

	mu      sync.Mutex
	present map[string]bool
}

// report reports the result of an operation that is repeated again and again. problem is
// the text for its failure; err is nil if the operation succeeded.
func (t *troubleLog) report(problem string, err error) {
	if t.life.Err() != nil {
		return
	}
	t.mu.Lock()
	known := t.present[problem]
	t.present[problem] = err != nil
	t.mu.Unlock()
	switch {
	case err != nil && !known:
		t.cfg.Logger.Warn(problem, "error", t.cfg.redact(err.Error()))
	case err == nil && known:
		t.cfg.Logger.Info("resolved: " + problem)
	}
}
