package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// runCalls are the operations on runs.
type runCalls struct{ *connection }

// Start starts a run.
func (c runCalls) Start(ctx context.Context, s control.Start) (control.Started, error) {
	return post[control.Started](ctx, c.connection, "runs", s)
}

// List returns one page of the runs that match a filter.
func (c runCalls) List(ctx context.Context, f control.Filter) (engine.Page, error) {
	return get[engine.Page](ctx, c.connection, "runs", queryOf(map[string]any{
		"state": f.States, "workflow": f.Workflow, "search": f.Search, "error": f.Error, "order": f.Order, "after": f.After,
		"internal": f.Internal, "asking": f.Asking, "since": f.Since, "until": f.Until, "min_attempts": f.MinAttempts, "tag": repeated(f.Tags), "limit": f.Limit,
	}))
}

// Get returns a run with its whole history. id is the id of the run, the beginning of the id, or
// the key of the run. The other methods accept the same ids.
func (c runCalls) Get(ctx context.Context, id string) (*engine.Info, error) {
	return get[*engine.Info](ctx, c.connection, pathOf("runs", id), nil)
}

// History returns the history of a run as JSON: see [engine.Engine.History].
func (c runCalls) History(ctx context.Context, id string) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c.connection, pathOf("runs", id, "history"), nil)
}

// Output returns the output of an attempt of a run.
func (c runCalls) Output(ctx context.Context, q admin.OutputQuery) (admin.Output, error) {
	return get[admin.Output](ctx, c.connection, pathOf("runs", q.Run, "output"), queryOf(map[string]any{"step": q.Step, "operation": q.Operation, "attempt": q.Attempt}))
}

// Cancel ends a run and its attempts.
func (c runCalls) Cancel(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "cancel"), nil)
}

// Abandon ends a run without undoing its operations.
func (c runCalls) Abandon(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "abandon"), nil)
}

// Undo undoes the operations of a dead run.
func (c runCalls) Undo(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "undo"), nil)
}

// Retry gives the failed steps of a dead run new attempts.
func (c runCalls) Retry(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "retry"), nil)
}

// Wake ends the waits of a run, so that its next attempts start now.
func (c runCalls) Wake(ctx context.Context, id string) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "wake"), nil)
}

// Signal sends a signal to a run, and returns when it is stored.
func (c runCalls) Signal(ctx context.Context, id string, s control.Signal) (control.Signaled, error) {
	return c.signal(ctx, pathOf("runs", id, "signals", s.Name), s)
}

// SignalKey is like Signal for the run of a workflow that has a key.
func (c runCalls) SignalKey(ctx context.Context, to engine.RunKey, s control.Signal) (control.Signaled, error) {
	return c.signal(ctx, pathOf("workflows", to.Workflow, "keys", to.Key, "signals", s.Name), s)
}

func (c runCalls) signal(ctx context.Context, path string, s control.Signal) (control.Signaled, error) {
	var body any
	if s.Data != nil {
		body = s.Data
	}
	return call[control.Signaled](ctx, c.connection, http.MethodPost, path, queryOf(map[string]any{"id": s.ID}), body)
}

// Answer answers a question of a run.
func (c runCalls) Answer(ctx context.Context, id, question string, r control.Reply) (control.Outcome, error) {
	return post[control.Outcome](ctx, c.connection, pathOf("runs", id, "answers", question), r)
}

// Callback returns a URL with which another system sends one signal with this name to the run. 0 means
// that it expires after [admin.DefaultExpiry].
func (c runCalls) Callback(ctx context.Context, id, name string, expires time.Duration) (admin.Callback, error) {
	in := map[string]control.Span{}
	if expires != 0 {
		in["expires"] = control.Span(expires)
	}
	return post[admin.Callback](ctx, c.connection, pathOf("runs", id, "callbacks", name), in)
}

// Replay starts a new run in place of one that has ended. A nil input means the input of the old
// run.
func (c runCalls) Replay(ctx context.Context, id string, input json.RawMessage) (control.Started, error) {
	in := map[string]json.RawMessage{}
	if input != nil {
		in["input"] = input
	}
	return post[control.Started](ctx, c.connection, pathOf("runs", id, "replay"), in)
}

// Rerun starts a new run in place of one that has ended. It begins with the step and keeps the
// results of the steps before it.
func (c runCalls) Rerun(ctx context.Context, id, step string) (control.Started, error) {
	return post[control.Started](ctx, c.connection, pathOf("runs", id, "rerun"), map[string]string{"step": step})
}

// RetryLatest starts a new run in place of one that has ended. The new run uses the current
// definition of the workflow and keeps the results of steps that have not changed.
func (c runCalls) RetryLatest(ctx context.Context, id string, l control.Latest) (control.Started, error) {
	return post[control.Started](ctx, c.connection, pathOf("runs", id, "retry-latest"), l)
}

// RetryMany retries at most [control.MaxBulk] dead runs.
func (c runCalls) RetryMany(ctx context.Context, b control.Bulk) (control.Done, error) {
	return post[control.Done](ctx, c.connection, "runs/retry", withoutPage(b))
}

// CancelMany ends at most [control.MaxBulk] runs.
func (c runCalls) CancelMany(ctx context.Context, b control.Bulk) (control.Done, error) {
	return post[control.Done](ctx, c.connection, "runs/cancel", withoutPage(b))
}

// withoutPage removes Limit, After and Order from the filter of a request: they are for lists, and
// the server rejects them here.
func withoutPage(b control.Bulk) control.Bulk {
	if b.Filter != nil {
		f := *b.Filter
		f.Limit, f.After, f.Order = 0, "", ""
		b.Filter = &f
	}
	return b
}
