package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
)

// runCalls are the operations on runs.
type runCalls struct{ *connection }

// runPath returns the path of a run, or of an operation on it.
func runPath(id string, what ...string) string {
	return strings.Join(append([]string{"runs", url.PathEscape(id)}, what...), "/")
}

// Start starts a run.
func (c runCalls) Start(ctx context.Context, s control.Start) (out control.Started, err error) {
	err = c.call(ctx, http.MethodPost, "runs", nil, s, &out)
	return out, err
}

// List returns runs.
func (c runCalls) List(ctx context.Context, f control.Filter) (page engine.Page, err error) {
	err = c.call(ctx, http.MethodGet, "runs", filterValues(f), nil, &page)
	return page, err
}

// Get returns a run with its whole history. id may be the id, its beginning, or the key of the
// run.
func (c runCalls) Get(ctx context.Context, id string) (*engine.Info, error) {
	info := new(engine.Info)
	err := c.call(ctx, http.MethodGet, runPath(id), nil, nil, info)
	return info, err
}

// Cancel ends a run.
func (c runCalls) Cancel(ctx context.Context, id string) (o control.Outcome, err error) {
	err = c.call(ctx, http.MethodPost, runPath(id, "cancel"), nil, nil, &o)
	return o, err
}

// Retry gives the failed steps of a dead run new attempts.
func (c runCalls) Retry(ctx context.Context, id string) (o control.Outcome, err error) {
	err = c.call(ctx, http.MethodPost, runPath(id, "retry"), nil, nil, &o)
	return o, err
}

// Wake ends the waits of a run.
func (c runCalls) Wake(ctx context.Context, id string) (o control.Outcome, err error) {
	err = c.call(ctx, http.MethodPost, runPath(id, "wake"), nil, nil, &o)
	return o, err
}

// Replay starts a run in place of one that has ended, with another input unless it is nil.
func (c runCalls) Replay(ctx context.Context, id string, input json.RawMessage) (out control.Started, err error) {
	in := map[string]json.RawMessage{}
	if input != nil {
		in["input"] = input
	}
	err = c.call(ctx, http.MethodPost, runPath(id, "replay"), nil, in, &out)
	return out, err
}

// Rerun starts a run in place of one that has ended, from a step on.
func (c runCalls) Rerun(ctx context.Context, id, step string) (out control.Started, err error) {
	err = c.call(ctx, http.MethodPost, runPath(id, "rerun"), nil, map[string]string{"step": step}, &out)
	return out, err
}

// RetryLatest starts a run in place of one that has ended, with the current definition and the
// results of the steps that are the same.
func (c runCalls) RetryLatest(ctx context.Context, id string, l control.Latest) (out control.Started, err error) {
	err = c.call(ctx, http.MethodPost, runPath(id, "retry-latest"), nil, l, &out)
	return out, err
}

// RetryMany retries many dead runs: at most a thousand in a call.
func (c runCalls) RetryMany(ctx context.Context, b control.Bulk) (d control.Done, err error) {
	err = c.call(ctx, http.MethodPost, "runs/retry", nil, withoutPage(b), &d)
	return d, err
}

// CancelMany ends many runs: at most a thousand in a call.
func (c runCalls) CancelMany(ctx context.Context, b control.Bulk) (d control.Done, err error) {
	err = c.call(ctx, http.MethodPost, "runs/cancel", nil, withoutPage(b), &d)
	return d, err
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

// filterValues returns the query of a list.
func filterValues(f control.Filter) url.Values {
	v := url.Values{}
	set := func(name, text string) {
		if text != "" {
			v.Set(name, text)
		}
	}
	set("state", strings.Join(f.States, ","))
	set("workflow", f.Workflow)
	set("search", f.Search)
	set("error", f.Error)
	set("order", f.Order)
	set("after", f.After)
	if f.Internal {
		v.Set("internal", "true")
	}
	for name, t := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !t.IsZero() {
			v.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	for name, n := range map[string]int{"min_attempts": f.MinAttempts, "limit": f.Limit} {
		if n != 0 {
			v.Set(name, strconv.Itoa(n))
		}
	}
	return v
}
