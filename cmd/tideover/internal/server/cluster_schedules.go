package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// clusterSchedules sets the schedules of a cluster. It retries until every shard has
// accepted them, since a shard may be without an owner for a while.
type clusterSchedules struct {
	set    func(context.Context, []engine.Schedule) error
	log    *slog.Logger
	latest chan []engine.Schedule // the newest schedules that run has not received yet; buffer of one
}

// schedulesPolicy is the retry policy for setting the schedules.
const schedulesPolicy = "exponential(1s..1m) jitter=20% attempts=unlimited"

func newClusterSchedules(e *engine.Engine, log *slog.Logger) *clusterSchedules {
	return &clusterSchedules{set: e.SetSchedules, log: log, latest: make(chan []engine.Schedule, 1)}
}

// replace passes the list to the method run, which sets it as the schedules of the cluster. It
// drops an earlier list that run has not received yet. Only one goroutine at a time may call
// replace.
func (c *clusterSchedules) replace(list []engine.Schedule) {
	select {
	case <-c.latest: // replaced before run received it
	default:
	}
	c.latest <- list
}

// run sets the schedules that replace receives, until the context ends.
func (c *clusterSchedules) run(ctx context.Context) error {
	runner := retry.Must(schedulesPolicy, retry.WithOnRetry(c.logRetry))
	stop := func() {}
	for {
		select {
		case list := <-c.latest:
			stop() // the previous list is outdated
			stop = c.start(ctx, runner, list)
		case <-ctx.Done():
			stop()
			return nil
		}
	}
}

// start sets a list in the background, with retries. stop cancels that, and waits until the goroutine
// has ended.
func (c *clusterSchedules) start(ctx context.Context, runner *retry.Runner, list []engine.Schedule) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		// The policy has no limit: only the end of the context is an error.
		_ = runner.Do(ctx, func(ctx context.Context) error { return c.set(ctx, list) })
	})
	return func() { cancel(); running.Wait() }
}

// logRetry logs a failed attempt.
func (c *clusterSchedules) logRetry(_ context.Context, ev retry.Event) error {
	c.log.Warn("not all shards have the schedules yet", "error", ev.Err, "next_in", ev.Delay.Round(time.Second))
	return nil
}
