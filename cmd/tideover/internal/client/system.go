package client

import (
	"context"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
)

// systemCalls are the operations on the server, its workflows and schedules.
type systemCalls struct{ *connection }

// Status returns the state of the server.
func (c systemCalls) Status(ctx context.Context) (admin.Status, error) {
	return get[admin.Status](ctx, c.connection, "status", nil)
}

// Healthy returns the result of the server's health check. An unhealthy server is not an error.
func (c systemCalls) Healthy(ctx context.Context) (admin.Health, error) {
	return get[admin.Health](ctx, c.connection, "healthz", nil)
}

// Workflows returns the workflows that can be started, with their schedules.
func (c systemCalls) Workflows(ctx context.Context) (control.Workflows, error) {
	return get[control.Workflows](ctx, c.connection, "workflows", nil)
}

// PauseWorkflow stops all runs of a workflow until it is resumed, and returns the workflow.
func (c systemCalls) PauseWorkflow(ctx context.Context, name string) (control.Workflow, error) {
	return post[control.Workflow](ctx, c.connection, pathOf("workflows", name, "pause"), nil)
}

// ResumeWorkflow ends the pause of a workflow, and returns the workflow.
func (c systemCalls) ResumeWorkflow(ctx context.Context, name string) (control.Workflow, error) {
	return post[control.Workflow](ctx, c.connection, pathOf("workflows", name, "resume"), nil)
}

// Schedules returns the schedules.
func (c systemCalls) Schedules(ctx context.Context) ([]engine.Schedule, error) {
	out, err := get[struct{ Schedules []engine.Schedule }](ctx, c.connection, "schedules", nil)
	return out.Schedules, err
}

// PauseSchedule stops a schedule until it is resumed, and returns it.
func (c systemCalls) PauseSchedule(ctx context.Context, name string) (engine.Schedule, error) {
	return post[engine.Schedule](ctx, c.connection, pathOf("schedules", name, "pause"), nil)
}

// ResumeSchedule ends the pause of a schedule, and returns it.
func (c systemCalls) ResumeSchedule(ctx context.Context, name string) (engine.Schedule, error) {
	return post[engine.Schedule](ctx, c.connection, pathOf("schedules", name, "resume"), nil)
}

// RunSchedule starts a run of a schedule now.
func (c systemCalls) RunSchedule(ctx context.Context, name string) (control.Started, error) {
	return post[control.Started](ctx, c.connection, pathOf("schedules", name, "run"), nil)
}

// Dead returns the dead runs grouped by similar errors. limit is the largest number of groups; 0
// means the default of the server. internal includes the runs of internal workflows.
func (c systemCalls) Dead(ctx context.Context, limit int, internal bool) (control.Dead, error) {
	return get[control.Dead](ctx, c.connection, "dead", queryOf(map[string]any{"internal": internal, "limit": max(limit, 0)}))
}

// BackupWithout copies all runs to the folder dir on the server's machine, except the runs of the
// given shards, which must be lost.
func (c systemCalls) BackupWithout(ctx context.Context, dir string, shards []int) (admin.Backup, error) {
	return post[admin.Backup](ctx, c.connection, "backup", admin.BackupRequest{Dir: dir, WithoutShards: shards})
}

// Cluster returns the members and the shards of the server's cluster.
func (c systemCalls) Cluster(ctx context.Context) (admin.Cluster, error) {
	return get[admin.Cluster](ctx, c.connection, "cluster", nil)
}

// Doctor returns the problems that the server finds when it checks its installation.
func (c systemCalls) Doctor(ctx context.Context) (admin.Diagnosis, error) {
	return get[admin.Diagnosis](ctx, c.connection, "doctor", nil)
}

// providerCalls are the operations on providers and their requests.
type providerCalls struct{ *connection }

// Providers returns the state of the providers in the order of the configuration, and the result
// of the last reload of the configuration.
func (c providerCalls) Providers(ctx context.Context) (admin.ProviderList, error) {
	return get[admin.ProviderList](ctx, c.connection, "providers", nil)
}

// Provider returns the state of a provider.
func (c providerCalls) Provider(ctx context.Context, name string) (gateway.Status, error) {
	return get[gateway.Status](ctx, c.connection, pathOf("providers", name), nil)
}

// Requests returns the requests of the gateway that the filter selects, newest first.
func (c providerCalls) Requests(ctx context.Context, f gateway.RequestFilter) (admin.RequestList, error) {
	return get[admin.RequestList](ctx, c.connection, "requests", queryOf(map[string]any{
		"provider": f.Provider, "outcome": f.Outcome, "status": f.Status, "min_duration": f.Least, "limit": f.Limit,
	}))
}

// Request returns a request of the gateway by its id.
func (c providerCalls) Request(ctx context.Context, id string) (gateway.RequestInfo, error) {
	return get[gateway.RequestInfo](ctx, c.connection, pathOf("requests", id), nil)
}

// ApplyProvider applies one of [gateway.Actions] to a provider, and returns the new state.
func (c providerCalls) ApplyProvider(ctx context.Context, name, action string) (gateway.Status, error) {
	return post[gateway.Status](ctx, c.connection, pathOf("providers", name, action), nil)
}
