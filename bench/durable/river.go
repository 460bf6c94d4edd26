package durable

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverSystem is the [System] River, on PostgreSQL.
type riverSystem struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	batch  int
	pid    int
}

// openRiverDefault opens River as its documentation does, with as many workers
// as the other systems.
func openRiverDefault(ctx context.Context, s Servers, handle Handle) (System, error) {
	return openRiver(ctx, s, handle, 1, river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
}

// openRiverTuned opens River with its fastest settings.
func openRiverTuned(ctx context.Context, s Servers, handle Handle) (System, error) {
	return openRiver(ctx, s, handle, 500, river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}},
		FetchCooldown:     time.Millisecond,
		FetchPollInterval: 10 * time.Millisecond,
	})
}

type riverWorker struct {
	river.WorkerDefaults[Payload]
	handle Handle
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[Payload]) error {
	w.handle(job.Args)
	return nil
}

func openRiver(ctx context.Context, s Servers, handle Handle, batch int, cfg river.Config) (_ System, err error) {
	pc, err := pgxpool.ParseConfig(s.Postgres)
	if err != nil {
		return nil, err
	}
	pc.MaxConns = 2 * Callers // no caller waits for a connection
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			pool.Close()
		}
	}()
	if err := prepareRiver(ctx, pool); err != nil {
		return nil, fmt.Errorf("river: prepare the database: %w", err)
	}
	cfg.Workers = river.NewWorkers()
	river.AddWorker(cfg.Workers, &riverWorker{handle: handle})
	cfg.Logger = slog.New(slog.DiscardHandler)
	client, err := river.NewClient(riverpgxv5.New(pool), &cfg)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return &riverSystem{pool, client, batch, s.PGPid}, nil
}

// prepareRiver creates the tables, or empties them.
func prepareRiver(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	// Pending writes of other measurements must not count for this one.
	for _, sql := range []string{"TRUNCATE river_job RESTART IDENTITY CASCADE", "ANALYZE river_job", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (r *riverSystem) Start(ctx context.Context, tasks []Payload) error {
	if len(tasks) == 1 {
		_, err := r.client.Insert(ctx, tasks[0], riverOpts(tasks[0]))
		return err
	}
	params := make([]river.InsertManyParams, len(tasks))
	for i, p := range tasks {
		params[i] = river.InsertManyParams{Args: p, InsertOpts: riverOpts(p)}
	}
	_, err := r.client.InsertManyFast(ctx, params)
	return err
}

func riverOpts(p Payload) *river.InsertOpts {
	if p.Due == 0 {
		return nil
	}
	return &river.InsertOpts{ScheduledAt: p.due()}
}

func (r *riverSystem) Batch() int     { return r.batch }
func (r *riverSystem) Servers() []int { return []int{r.pid} }

func (r *riverSystem) Completed(ctx context.Context) (n int, err error) {
	// A query for unfinished jobs is cheaper than counting the finished ones,
	// and this is polled.
	var left bool
	const sql = "SELECT EXISTS (SELECT 1 FROM river_job WHERE state NOT IN ('completed'))"
	if err := r.pool.QueryRow(ctx, sql).Scan(&left); err != nil || left {
		return 0, err
	}
	return n, r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job").Scan(&n)
}

func (*riverSystem) Settled(context.Context) (bool, error) { return true, nil }

func (r *riverSystem) Close(ctx context.Context) error {
	defer r.pool.Close()
	return r.client.Stop(ctx)
}
