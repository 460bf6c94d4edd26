package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// Open connects to the servers and joins the cluster, which it creates if there
// is none. It retries until the context ends, and for a minute at most. If the
// configuration is invalid or the credentials are rejected, it fails at once.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	cfg = cfg.withDefaults()
	l, err := open(ctx, cfg)
	return l, disk.Wrapf(err, "open log %s", cfg.Name)
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
	l, err := enter(ctx, cfg, c, second)
	if err != nil {
		c.nc.Close()
	}
	return l, err
}

// enter creates or finds the cluster, and becomes a member.
func enter(ctx context.Context, cfg Config, c *conn, second *secondCopy) (*Log, error) {
	b, err := findCluster(ctx, cfg, c, second)
	if err != nil {
		return nil, err
	}
	objects, err := openObjects(c, b.names, cfg, second)
	if err != nil {
		return nil, err
	}
	l, err := newLog(b, objects)
	if err == nil {
		err = l.join(ctx)
	}
	switch {
	case err == nil:
		return l, nil
	case l != nil && l.member.self() != "":
		return nil, errors.Join(err, l.Close())
	default:
		return nil, errors.Join(err, objects.cache.close())
	}
}

// findCluster creates the cluster or finds it.
func findCluster(ctx context.Context, cfg Config, c *conn, second *secondCopy) (*backend, error) {
	if err := checkServer(c); err != nil {
		return nil, err
	}
	js, err := natsjs.New(c.nc)
	if err != nil {
		return nil, err
	}
	b := &backend{cfg: cfg, names: names(cfg.Name), c: c}
	b.bucket = newBucket(c, b.names)
	creator := &creator{backend: b, js: js}
	if b.settings, err = retry.Value(ctx, opens, creator.prepare); err != nil {
		return nil, plain(err)
	}
	logOrigin(cfg, b.settings, second, b.created)
	logDifferences(cfg, b.settings, creator.log)
	b.timing = timingOf(b.settings.LeaseTime)
	b.timing.beat = cmp.Or(cfg.beat, b.timing.beat)
	return b, nil
}

// createTime is how long the creation of one stream may take, before it is tried
// again.
const createTime = 3 * time.Second

// creator finds the settings and streams of a cluster, or creates them.
type creator struct {
	*backend
	js natsjs.JetStream

	log      *natsjs.StreamInfo // stream of the first shard; nil if it did not exist
	proposed string             // id of the cluster that we wanted to create
}

// prepare returns the settings of the cluster, which it creates if there is none.
func (c *creator) prepare(ctx context.Context) (settings, error) {
	if err := c.findBucket(ctx); err != nil {
		return settings{}, err
	}
	s, revision, err := c.findSettings(ctx)
	if err != nil {
		return s, err
	}
	if err := s.check(c.cfg, c.bucket.name); err != nil {
		return s, err
	}
	if s.Ready {
		c.created = s.ID == c.proposed // true if an earlier attempt created the cluster and its answer was lost
		return s, nil
	}
	c.cfg.Logger.Info("making the streams of the cluster, which takes some seconds", "name", c.cfg.Name, "streams", s.Shards+2)
	if err := c.createStreams(ctx, s); err != nil {
		return s, err
	}
	s.Ready = true
	_, err = c.bucket.putJSON(ctx, settingsKey, s, revision)
	c.created = err == nil
	if errors.Is(err, errConflict) {
		err = nil // another member has created the streams and stored this at the same time
	}
	return s, err
}

// findBucket creates the bucket if there is none, unless the log of the first shard
// shows that there was one.
func (c *creator) findBucket(ctx context.Context) error {
	// Look for the log before the bucket: a process that creates the cluster makes
	// the bucket first, so that a log without a bucket means a deleted bucket.
	log, logErr := stream{c.c, c.names.logStream(0)}.info(ctx)
	_, err := c.bucket.info(ctx)
	c.log = log
	switch {
	case err == nil, !errors.Is(err, errGone):
		return err
	case logErr == nil:
		return fmt.Errorf("%w: stream %s was deleted, but the logs of the cluster are there; restore it from a backup, "+
			"or delete all streams that begin with %s to start anew", journal.ErrDamaged, c.names.bucketStream(), c.cfg.Name)
	case !errors.Is(logErr, errGone):
		return logErr
	}
	return c.create(ctx, natsjs.StreamConfig{
		Name:              c.names.bucketStream(),
		Description:       "members and owners of the shards of " + c.cfg.Name,
		Subjects:          []string{c.bucket.subject(">")},
		MaxMsgsPerSubject: 1,
		Replicas:          c.replicas(),
		AllowRollup:       true,
		AllowMsgTTL:       true,
	})
}

// findSettings returns the settings and their revision. If there are none, it stores
// those of the configuration. If another member stores its settings first, it returns
// these.
func (c *creator) findSettings(ctx context.Context) (s settings, revision uint64, err error) {
	if s, revision, err = c.bucket.settings(ctx); !errors.Is(err, errNoMessage) {
		return s, revision, err
	}
	if c.cfg.ReadOnly {
		return s, 0, ErrNoCluster
	}
	s = c.proposal()
	c.proposed = s.ID
	if revision, err = c.bucket.putJSON(ctx, settingsKey, s, 0); errors.Is(err, errConflict) {
		return c.bucket.settings(ctx)
	}
	return s, revision, err
}

func (c *creator) proposal() settings {
	return settings{
		Version: format, ID: rand.Text(), Shards: cmp.Or(c.cfg.Shards, DefaultShards), Replicas: c.replicas(),
		MaxBytes: c.cfg.MaxBytes, LeaseTime: cmp.Or(c.cfg.LeaseTime, DefaultLeaseTime), Created: time.Now().UTC(),
	}
}

func (c *creator) replicas() int {
	switch {
	case c.cfg.Replicas > 0:
		return c.cfg.Replicas
	case c.c.nc.ConnectedClusterName() != "":
		return 3
	default:
		return 1
	}
}

func (c *creator) createStreams(ctx context.Context, s settings) error {
	identity := map[string]string{identityKey: s.ID}
	err := c.create(ctx, natsjs.StreamConfig{
		Name:        c.names.blobStream(),
		Description: "snapshots and archives of " + c.cfg.Name,
		Subjects:    []string{c.names.chunkSubject(">"), c.names.metaSubject(">")},
		Replicas:    s.Replicas,
		AllowRollup: true,
		Metadata:    identity,
	})
	for n := 0; n < s.Shards && err == nil; n++ {
		err = c.create(ctx, natsjs.StreamConfig{
			Name:        c.names.logStream(n),
			Description: fmt.Sprintf("log of shard %d of %s", n, c.cfg.Name),
			Subjects:    []string{c.names.logSubject(n)},
			Replicas:    s.Replicas,
			MaxBytes:    s.MaxBytes,
			DenyDelete:  true, // a deleted message would be a gap in the log
			Metadata:    identity,
		})
	}
	return err
}

// create creates a stream. It succeeds if the stream exists with the same settings.
func (c *creator) create(ctx context.Context, cfg natsjs.StreamConfig) error {
	if c.cfg.ReadOnly {
		return ErrNoCluster
	}
	cfg.Retention, cfg.Storage, cfg.Discard = natsjs.LimitsPolicy, natsjs.FileStorage, natsjs.DiscardNew
	cfg.MaxMsgs, cfg.MaxConsumers, cfg.MaxMsgSize = -1, -1, -1
	cfg.Duplicates, cfg.AllowDirect = duplicates, true
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = -1
	}
	// When two processes create the same stream at once, one may get no answer.
	ctx, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	_, err := c.js.CreateStream(ctx, cfg)
	if api, ok := errors.AsType[*natsjs.APIError](err); ok {
		if api.ErrorCode == codeNoPeers || api.ErrorCode == codeNoReplicas {
			return fmt.Errorf("replicas: %d need as many servers with room for stream %s: %w", cfg.Replicas, cfg.Name, err)
		}
		return serverError(cfg.Name, api)
	}
	if err != nil {
		return c.c.transportError(ctx, cfg.Name, err)
	}
	return nil
}
