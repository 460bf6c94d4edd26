package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/internal/disk"
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
