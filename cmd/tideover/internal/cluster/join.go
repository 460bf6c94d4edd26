// Package cluster joins this process to the cluster of processes that share the runs of an
// engine, and reports problems of the cluster.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// joinPolicy is the policy for attempts to join, which never gives up. An attempt uses the streams
// that an interrupted attempt has already created.
const joinPolicy = "exponential(500ms..15s) jitter=20% attempts=unlimited attempt-timeout=10s"

// slowJoin is the time after which the log says that joining takes long.
const slowJoin = 3 * time.Second

// Options describe the cluster and the process that joins it.
type Options struct {
	Config  *Config
	Secrets secret.Resolver // for the references of Config
	Dir     string          // folder for local copies, which may be lost; "" means a temporary folder
	Log     *slog.Logger
	Redact  func(string) string // masks secrets in texts

	AcceptLoss, ReadOnly bool // of [jetstream.Config]
}

// log returns the configuration of the cluster's log.
func (o *Options) log() (jetstream.Config, error) {
	c, err := o.Config.Log(o.Secrets)
	if err != nil {
		return c, err
	}
	c.AcceptLoss, c.ReadOnly = o.AcceptLoss, o.ReadOnly
	if o.Dir != "" {
		c.Cache = filepath.Join(o.Dir, "cache")
	}
	c.Logger, c.Redact, c.Prefix = o.Log, o.Redact, "engine."
	c.Before = readClusterRecord(o.Dir, c.Name)
	return c, c.Validate()
}

// Join joins the cluster, and creates it if it does not exist. While too few servers are
// available, it waits until the context ends, and logs each attempt. It returns permanent errors
// at once.
func Join(ctx context.Context, o Options) (*jetstream.Log, error) {
	c, err := o.log()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	runner := retry.Must(joinPolicy, retry.WithClassifier(outcome), retry.WithOnRetry(o.logRetry))
	o.Log.Info("joining the cluster", "name", c.Name)
	soon := time.AfterFunc(slowJoin, func() { o.Log.Info("still joining the cluster; waiting for NATS", "name", c.Name) })
	defer soon.Stop()
	l, err := retry.Value(ctx, runner, func(ctx context.Context) (*jetstream.Log, error) { return jetstream.Open(ctx, c) })
	if e, ok := errors.AsType[*retry.Error](err); ok && e.Reason == retry.StopPermanent {
		err = e.Last
	}
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	o.joined(l, c.Name)
	return l, nil
}

// joined logs the name and the id of the cluster, and stores them in the folder for the next start.
func (o *Options) joined(l *jetstream.Log, name string) {
	what := "joined the cluster"
	if l.Made() {
		what = "created and joined the cluster"
	}
	o.Log.Info(what, "name", name, "member", l.MemberName(), "id", l.Member(), "shards", l.Shards())
	if err := writeClusterRecord(o.Dir, name, l.ClusterID()); err != nil {
		o.Log.Warn("the cluster id can't be written to the data folder; a later loss of the cluster will not be detected", "error", err)
	}
}

// logRetry logs why joining waits.
func (o *Options) logRetry(_ context.Context, ev retry.Event) error {
	o.Log.Warn("the cluster can't be joined yet; waiting for NATS", "error", ev.Err, "attempt", ev.Attempt, "next_in", ev.Delay.Round(10*time.Millisecond))
	return nil
}

// outcome classifies an error of jetstream.Open. Open retries transient errors itself, and returns
// a [retry.Error] when it stops. All other errors are permanent.
func outcome(err error) retry.Outcome {
	if e, ok := errors.AsType[*retry.Error](err); ok && e.Reason != retry.StopPermanent {
		return retry.Outcome{}
	}
	return retry.Outcome{Class: retry.ClassPermanent}
}

// visitTime is how long [Visit] waits for the servers.
const visitTime = 30 * time.Second

// InUseError says that a cluster has members.
type InUseError struct{ Members string }

func (e *InUseError) Error() string { return "in use by " + e.Members + ": stop them first" }

// Visit opens the log of a cluster for a command that needs the cluster for itself. If the cluster
// has members that send no heartbeats, it waits until their leases have ended, and calls waiting
// meanwhile. It returns an [InUseError] if the cluster has other members.
func Visit(ctx context.Context, o Options, waiting func(members string, left time.Duration)) (*jetstream.Log, error) {
	c, err := o.log()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	opening, cancel := context.WithTimeout(ctx, visitTime)
	defer cancel()
	l, err := jetstream.Open(opening, c)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	others, err := l.AwaitAlone(ctx, func(others []journal.Member, left time.Duration) { waiting(describe(others), left) })
	switch {
	case err != nil && len(others) > 0:
		err = fmt.Errorf("in use by %s: %w: check the NATS servers with tideover doctor", describe(others), err)
	case len(others) > 0:
		err = &InUseError{describe(others)}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cluster %s: %w", c.Name, err), l.Close())
	}
	return l, nil
}

// describe names members.
func describe(members []journal.Member) string {
	var names []string
	for _, m := range members {
		names = append(names, fmt.Sprintf("%s (%s, last heartbeat %v ago)", m.Name, m.ID, m.Silence.Round(100*time.Millisecond)))
	}
	return strings.Join(names, ", ")
}
