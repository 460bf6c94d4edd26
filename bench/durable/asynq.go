package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqSystem is the [System] Asynq, on Redis.
type asynqSystem struct {
	client    *asynq.Client
	server    *asynq.Server
	inspector *asynq.Inspector
	pid       int
}

func openAsynq(ctx context.Context, s Servers, handle Handle) (System, error) {
	opt := asynq.RedisClientOpt{Network: "unix", Addr: s.Redis, PoolSize: 2 * workers}
	db, ok := opt.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		return nil, fmt.Errorf("asynq: %T is not a client", opt.MakeRedisClient())
	}
	if err := errors.Join(db.FlushAll(ctx).Err(), db.Close()); err != nil {
		return nil, fmt.Errorf("asynq: empty the database: %w", err)
	}
	a := &asynqSystem{client: asynq.NewClient(opt), inspector: asynq.NewInspector(opt), pid: s.RedisPid}
	a.server = asynq.NewServer(opt, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	return a, a.server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		var p Payload
		if err := json.Unmarshal(t.Payload(), &p); err != nil {
			return err
		}
		handle(p)
		return nil
	}))
}

func (a *asynqSystem) Start(ctx context.Context, tasks []Payload) error {
	for _, p := range tasks {
		var opts []asynq.Option
		if p.Due != 0 {
			opts = append(opts, asynq.ProcessAt(p.due()))
		}
		if _, err := a.client.EnqueueContext(ctx, asynq.NewTask(p.Kind(), p.encode()), opts...); err != nil {
			return err
		}
	}
	return nil
}

func (*asynqSystem) Batch() int       { return 1 }
func (a *asynqSystem) Servers() []int { return []int{a.pid} }

func (a *asynqSystem) Completed(context.Context) (int, error) {
	info, err := a.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return info.ProcessedTotal - info.FailedTotal, nil
}

func (*asynqSystem) Settled(context.Context) (bool, error) { return true, nil }

func (a *asynqSystem) Close(context.Context) error {
	a.server.Shutdown()
	return a.client.Close()
}
