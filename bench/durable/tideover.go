package durable

import (
	"context"
	"log/slog"

	"github.com/tideover/tideover/engine"
)

// tideover is the [System] tideover, embedded in this process.
type tideover struct {
	*engine.Engine
	work *engine.Workflow
}

func openTideover(ctx context.Context, s Servers, handle Handle) (System, error) {
	return open(ctx, s.Dir, handle)
}

// open opens an engine in the folder, with a workflow of one step and the others.
func open(ctx context.Context, dir string, handle Handle, others ...*engine.Workflow) (*tideover, error) {
	work, err := engine.NewWorkflow("work", engine.Step("work", func(_ context.Context, p Payload) (struct{}, error) {
		handle(p)
		return struct{}{}, nil
	}))
	if err != nil {
		return nil, err
	}
	return openWith(ctx, dir, work, others...)
}

// openFlow opens the [System] tideover-flow: a task is a run of a flow with one operation.
func openFlow(ctx context.Context, s Servers, handle Handle) (System, error) {
	work, err := engine.NewFlow("work", func(f *engine.Flow, p Payload) (struct{}, error) {
		return engine.Do(f, "work", func(context.Context) (struct{}, error) {
			handle(p)
			return struct{}{}, nil
		})
	})
	if err != nil {
		return nil, err
	}
	return openWith(ctx, s.Dir, work)
}

// openWith opens an engine in the folder, with the measured workflow and the others.
func openWith(ctx context.Context, dir string, work *engine.Workflow, others ...*engine.Workflow) (*tideover, error) {
	e, err := engine.Open(ctx, engine.Config{
		Dir: dir, Durability: engine.Full, Workflows: append(others, work), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return &tideover{e, work}, nil
}

func (t *tideover) Start(ctx context.Context, tasks []Payload) error {
	for _, p := range tasks {
		var opts []engine.StartOption
		if p.Due != 0 {
			opts = append(opts, engine.At(p.due()))
		}
		if _, err := t.Engine.Start(ctx, t.work, p, opts...); err != nil {
			return err
		}
	}
	return nil
}

func (*tideover) Batch() int     { return 1 }
func (*tideover) Servers() []int { return nil }

func (t *tideover) Completed(ctx context.Context) (int, error) {
	w, err := t.workflow(ctx, "work")
	return int(w.Totals.Succeeded), err
}

// workflow returns the counts of a workflow's runs.
func (t *tideover) workflow(ctx context.Context, name string) (engine.WorkflowStats, error) {
	stats, err := t.Stats(ctx)
	for _, w := range stats.Workflows {
		if w.Name == name {
			return w, err
		}
	}
	return engine.WorkflowStats{}, err
}

// Settled reports whether lists and search are up to date.
func (t *tideover) Settled(ctx context.Context) (bool, error) {
	stats, err := t.Stats(ctx)
	if err != nil || stats.Behind > 0 {
		return false, err
	}
	// No run has this workflow, so this only counts what search does not
	// contain yet.
	page, err := t.List(ctx, engine.Filter{Workflow: "none", Search: "any", Limit: 1})
	return page.Behind == 0, err
}
