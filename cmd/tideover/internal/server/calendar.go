package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// calendar tells a cluster which schedules there are, until it has taken them:
// shards may have no owner for a while.
type calendar struct {
	set    func(context.Context, []engine.Schedule) error
	log    *slog.Logger
	latest chan []engine.Schedule // has room for one
}

// sets is how the schedules are told again.
const sets = "exponential(1s..1m) jitter=20% attempts=unlimited"

func newCalendar(e *engine.Engine, log *slog.Logger) *calendar {
	return &calendar{set: e.SetSchedules, log: log, latest: make(chan []engine.Schedule, 1)}
}

// plan makes these all the schedules there are, sooner or later. It is called by one
// goroutine at a time.
func (c *calendar) plan(list []engine.Schedule) {
	select {
	case <-c.latest: // which is the latest no more
	default:
	}
	c.latest <- list
}

// run tells until the context ends.
func (c *calendar) run(ctx context.Context) error {
	runner := retry.Must(sets, retry.WithOnRetry(c.tell))
	for {
		select {
		case list := <-c.latest:
			for more := true; more; {
				list, more = c.insist(ctx, runner, list)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// insist tells of a list until it is taken, or there is another one, which it
// returns.
func (c *calendar) insist(ctx context.Context, runner *retry.Runner, list []engine.Schedule) (next []engine.Schedule, more bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It ends with the context, or well.
		_ = runner.Do(ctx, func(ctx context.Context) error { return c.set(ctx, list) })
	}()
	select {
	case <-done:
		return nil, false
	case next = <-c.latest:
		cancel()
		<-done
		return next, true
	}
}

func (c *calendar) tell(_ context.Context, ev retry.Event) error {
	c.log.Warn("not all shards have the schedules yet", "error", ev.Err, "next_in", ev.Delay.Round(time.Second))
	return nil
}
