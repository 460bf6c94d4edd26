package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

// systemCalls are the operations on the server, its workflows and schedules.
type systemCalls struct{ *connection }

// Status returns the state of the server.
func (c systemCalls) Status(ctx context.Context) (s control.Status, err error) {
	err = c.call(ctx, http.MethodGet, "status", nil, nil, &s)
	return s, err
}

// Healthy returns whether the server works. An unhealthy server is not an error.
func (c systemCalls) Healthy(ctx context.Context) (h control.Health, err error) {
	err = c.call(ctx, http.MethodGet, "healthz", nil, nil, &h)
	return h, err
}

// Workflows returns the workflows that can be started.
func (c systemCalls) Workflows(ctx context.Context) ([]control.Workflow, error) {
	out, err := c.AllWorkflows(ctx)
	return out.Workflows, err
}

// AllWorkflows is Workflows, and says whether their schedules are known.
func (c systemCalls) AllWorkflows(ctx context.Context) (out control.Workflows, err error) {
	err = c.call(ctx, http.MethodGet, "workflows", nil, nil, &out)
	return out, err
}

// Schedules returns the schedules.
func (c systemCalls) Schedules(ctx context.Context) ([]engine.Schedule, error) {
	var out struct{ Schedules []engine.Schedule }
	err := c.call(ctx, http.MethodGet, "schedules", nil, nil, &out)
	return out.Schedules, err
}

// Dead returns the dead runs grouped by their errors, on request with those of internal
// workflows.
func (c systemCalls) Dead(ctx context.Context, limit int, internal bool) (out control.Dead, err error) {
	q := url.Values{}
	if internal {
		q.Set("internal", "true")
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	err = c.call(ctx, http.MethodGet, "dead", q, nil, &out)
	return out, err
}

// Backup copies everything to a folder on the server's machine.
func (c systemCalls) Backup(ctx context.Context, dir string) error {
	var out any
	return c.call(ctx, http.MethodPost, "backup", nil, map[string]string{"dir": dir}, &out)
}

// BackupWithout copies everything to a folder on the server's machine, except lost shards.
func (c systemCalls) BackupWithout(ctx context.Context, dir string, shards []int) (b control.Backup, err error) {
	in := map[string]any{"dir": dir}
	if len(shards) > 0 {
		in["without_shards"] = shards
	}
	err = c.call(ctx, http.MethodPost, "backup", nil, in, &b)
	return b, err
}

// Cluster returns the processes that share the work of the server.
func (c systemCalls) Cluster(ctx context.Context) (out control.Cluster, err error) {
	err = c.call(ctx, http.MethodGet, "cluster", nil, nil, &out)
	return out, err
}

// Doctor returns what weakens the guarantees of the server.
func (c systemCalls) Doctor(ctx context.Context) (d control.Diagnosis, err error) {
	err = c.call(ctx, http.MethodGet, "doctor", nil, nil, &d)
	return d, err
}

// providerCalls are the operations on providers.
type providerCalls struct{ *connection }

// Providers returns the state of the providers in the order of the configuration, and the result
// of its last reload.
func (c providerCalls) Providers(ctx context.Context) (list control.ProviderList, err error) {
	err = c.call(ctx, http.MethodGet, "providers", nil, nil, &list)
	return list, err
}

// Provider returns the state of a provider.
func (c providerCalls) Provider(ctx context.Context, name string) (st gateway.Status, err error) {
	err = c.call(ctx, http.MethodGet, "providers/"+url.PathEscape(name), nil, nil, &st)
	return st, err
}

// ApplyProvider applies one of [gateway.Actions] to a provider, and returns its state after that.
func (c providerCalls) ApplyProvider(ctx context.Context, name, action string) (st gateway.Status, err error) {
	err = c.call(ctx, http.MethodPost, "providers/"+url.PathEscape(name)+"/"+url.PathEscape(action), nil, nil, &st)
	return st, err
}
