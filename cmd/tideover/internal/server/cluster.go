package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/logsample"
)

// checkStorage returns an error if the demo can't run with the configuration, or if the server is
// to join a cluster and its data folder still contains runs.
func checkStorage(o Options, cfg *config.Config) error {
	if o.Demo && cfg.Server.TLS.On() {
		return errors.New("the demo calls the gateway without TLS: leave out --demo, or server.tls")
	}
	if !cfg.Engine.Clustered() || o.Gateway {
		return nil
	}
	if o.Demo {
		return errors.New("the demo keeps its runs in a folder: leave out --demo, or engine.nats")
	}
	return checkNoRuns(cfg.Server.Data)
}

// checkNoRuns returns an error if the data folder has runs that were not moved to a cluster. A
// process of the cluster would not continue them.
func checkNoRuns(data string) error {
	for _, name := range []string{"log.db", filepath.Join("blobs", "moved")} {
		_, err := os.Stat(filepath.Join(data, name))
		switch exists := err == nil; {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("server.data: %w", err)
		case exists != (name == "log.db"):
			return nil
		}
	}
	return fmt.Errorf("server.data: %s has runs that the cluster would not continue: move them to the cluster with `tideover move`, or name another folder", data)
}

// joinCluster connects to the cluster, and sets the log and the folder in the engine's
// configuration.
func (p *parts) joinCluster(ctx context.Context, ec *engine.Config) error {
	data := p.cfg.Server.Data
	ec.Logger = sampleWarnings(p.log)
	log, err := cluster.Join(ctx, cluster.Options{Config: &p.cfg.Engine, Secrets: p.cfg.Secrets(), Dir: data, Log: ec.Logger, Redact: p.redactor.String, AcceptLoss: ec.AcceptLoss})
	if err != nil {
		return err
	}
	p.cluster, ec.Log, ec.Dir = log, log, filepath.Join(data, "views")
	p.watcher = cluster.NewWatcher(log.Check, p.log)
	return nil
}

// applyToCluster makes the engine of a cluster use the plan. It does not wait until all shards have
// the schedules.
func (p *parts) applyToCluster(n plan) error {
	if err := p.engine.Replace(n.workflows); err != nil {
		return err
	}
	p.schedules.replace(n.schedules)
	p.nip90.Offer(n.offer, p.engine)
	return nil
}

// sampleWarnings returns a logger that logs the same warning or error once per minute. While NATS
// is unavailable, every shard reports the same error repeatedly.
func sampleWarnings(log *slog.Logger) *slog.Logger {
	return slog.New(logsample.NewHandler(log.Handler(), &logsample.Sampler[string]{Every: time.Minute, Max: 4096}))
}

// missingPause is how long a step waits if this process lacks a provider or a notifier that
// the step names.
const missingPause = 30 * time.Second

// snoozeMissing makes handlers wait instead of fail if the configuration of this process lacks
// a provider or a notifier that the step names. Without a cluster that error is permanent. In a
// cluster, another process may have loaded a newer configuration that this one does not have yet.
func snoozeMissing(handlers map[string]engine.Handler) {
	for name, handle := range handlers {
		handlers[name] = func(ctx context.Context, t *engine.Task) ([]byte, error) {
			out, err := handle(ctx, t)
			if err = holdMissing(err); err != nil {
				return nil, err
			}
			return out, nil
		}
	}
}

// holdMissing returns the error of an attempt, or one that postpones the step if the configuration
// of this process lacks what the step names: see snoozeMissing.
func holdMissing(err error) error {
	if errors.Is(err, gateway.ErrUnknownProvider) || errors.Is(err, outbox.ErrUnknown) {
		return engine.Snooze(missingPause, err.Error())
	}
	return err
}
