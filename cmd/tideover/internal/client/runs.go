package client

import (
	"context"
	"encoding/json"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
)

// runCalls are the operations on runs.
type runCalls struct{ *connection }

// Start starts a run.
func (c runCalls) Start(ctx context.Context, s control.Start) (control.Started, error) {
	return post[control.Started](ctx, c.connection, "runs", s)
}

// List returns runs.
func (c runCalls) List(ctx context.Context, f control.Filter) (engine.Page, error) {
	return get[engine.Page](ctx, c.connection, "runs", queryOf(map[string]any{
		"state": f.States, "workflow": f.Workflow, "search": f.Search, "error": f.Error, "order": f.Order, "after": f.After,
		"internal": f.Internal, "since": f.Since, "until": f.Until, "min_attempts": f.MinAttempts, "limit": f.Limit,
	}))
}

// Get returns a run with its whole history. id may be the id, its beginning, or the key of the
// run.
func (c runCalls) Get(ctx context.Context, id string) (*engine.Info, error) {
	return get[*engine.Info](ctx, c.connection, pathOf("runs", id), nil)
}

// Cancel ends a run.
func (c runCalls) Cancel(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "cancel"), nil)
}

// Retry gives the failed steps of a dead run new attempts.
func (c runCalls) Retry(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "retry"), nil)
}

// Wake ends the waits of a run.
func (c runCalls) Wake(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "wake"), nil)
}

// Replay starts a run in place of one that has ended, with another input unless it is nil.
func (c runCalls) Replay(ctx context.Context, id string, input json.RawMessage) (control.Started, error) {
	in := map[string]json.RawMessage{}
	if input != nil {
		in["input"] = input
	}
	return post[control.Started](ctx, c.connection, pathOf("runs", id, "replay"), in)
}

// Rerun starts a run in place of one that has ended, from a step on.
func (c runCalls) Rerun(ctx context.Context, id, step string) (control.Started, error) {
	return post[control.Started](ctx, c.connection, pathOf("runs", id, "rerun"), map[string]string{"step": step})
}

// RetryLatest starts a run in place of one that has ended, with the current definition and the
// results of the steps that are the same.
func (c runCalls) RetryLatest(ctx context.Context, id string, l control.Latest) (control.Started, error) {
	return post[control.Started](ctx, c.connection, pathOf("runs", id, "retry-latest"), l)
}

// RetryMany retries many dead runs: at most a thousand in a call.
func (c runCalls) RetryMany(ctx context.Context, b control.Bulk) (control.Done, error) {
	return post[control.Done](ctx, c.connection, "runs/retry", withoutPage(b))
}

// CancelMany ends many runs: at most a thousand in a call.
func (c runCalls) CancelMany(ctx context.Context, b control.Bulk) (control.Done, error) {
	return post[control.Done](ctx, c.connection, "runs/cancel", withoutPage(b))
}

// withoutPage returns the request without the fields of a list in its filter.
func withoutPage(b control.Bulk) control.Bulk {
	if b.Filter != nil {
		f := *b.Filter
		f.Limit, f.After, f.Order = 0, "", ""
		b.Filter = &f
	}
	return b
}
