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
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/logsample"
)

// settle decides where runs are kept, and refuses what would leave some behind, and
// a demo that could not ask.
func (s *server) settle() error {
	if s.Demo && s.cfg.Server.TLS.On() {
		return errors.New("the demo asks the gateway without TLS: leave out --demo, or server.tls")
	}
	if !s.cfg.Engine.Clustered() || s.Gateway {
		return nil
	}
	if s.Demo {
		return errors.New("the demo keeps its runs in a folder: leave out --demo, or engine.nats")
	}
	return left(s.cfg.Server.Data)
}

// left refuses a folder with runs of its own, which nobody would go on with.
func left(data string) error {
	for _, name := range []string{"log.db", filepath.Join("blobs", "moved")} {
		_, err := os.Stat(filepath.Join(data, name))
		switch there := err == nil; {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("server.data: %w", err)
		case there != (name == "log.db"):
			return nil
		}
	}
	return fmt.Errorf("server.data: %s has runs of its own, which would stand still: move them to the cluster with `tideover move`, or name another folder", data)
}

// joinCluster makes the engine one of a cluster.
func (s *server) joinCluster(ctx context.Context, ec *engine.Config) error {
	data := s.cfg.Server.Data
	ec.Logger = sampleTrouble(s.Log)
	log, err := cluster.Join(ctx, cluster.Options{Config: &s.cfg.Engine, Secrets: s.cfg.Secrets(), Dir: data, Log: ec.Logger, Redact: s.Source.Redactor.String})
	if err != nil {
		return err
	}
	s.cluster, ec.Log, ec.Dir = log, log, filepath.Join(data, "views")
	return nil
}

// takeOverCluster has the engine do what was prepared, and need not wait for the others.
func (s *server) takeOverCluster(p plan) error {
	if err := s.engine.Replace(p.workflows); err != nil {
		return err
	}
	s.schedules.replace(p.schedules)
	s.nip90.Offer(p.offer, s.engine)
	return nil
}

// sampleTrouble returns a logger with one line in a minute for the same warning or
// error. While NATS is away, every shard reports that again and again, and there are
// many.
func sampleTrouble(log *slog.Logger) *slog.Logger {
	return slog.New(logsample.NewHandler(log.Handler(), &logsample.Sampler[string]{Every: time.Minute, Max: 4096}))
}

// missingPause is how long a step waits if this process lacks a provider or a notifier that
// the step names.
const missingPause = 30 * time.Second

// snoozeMissing makes handlers wait instead of fail if the configuration of this process lacks
// a provider or a notifier that the step names. Outside of a cluster that error is permanent. In a
// cluster, another process may already have a newer file, or this one may still have an old one.
func snoozeMissing(handlers map[string]engine.Handler) {
	for name, handle := range handlers {
		handlers[name] = func(ctx context.Context, t *engine.Task) ([]byte, error) {
			out, err := handle(ctx, t)
			if errors.Is(err, gateway.ErrUnknownProvider) || errors.Is(err, outbox.ErrUnknown) {
				return nil, engine.Snooze(missingPause, err.Error())
			}
			return out, err
		}
	}
}
