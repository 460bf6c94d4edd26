package api

import (
	"context"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
	"github.com/tideover/tideover/internal/console/control"
)

// workflowsHandler handles requests about workflows.
type workflowsHandler struct{ workflows *control.Definitions }

func (h workflowsHandler) list(r *request) (any, error) {
	q := r.query("internal")
	internal := q.yes("internal", false)
	if q.err != nil {
		return nil, q.err
	}
	return h.workflows.List(r.Context(), internal)
}

// change returns the handler that calls do for a workflow, and answers with the workflow.
func (h workflowsHandler) change(do func(workflows *control.Definitions, ctx context.Context, name, by string) (control.Workflow, error)) handler {
	return func(r *request) (any, error) {
		who, o, err := r.change()
		if err == nil {
			err = o.fields()
		}
		if err != nil {
			return nil, err
		}
		return do(h.workflows, r.Context(), r.values["workflow"], who)
	}
}

// schedulesHandler handles requests about schedules.
type schedulesHandler struct{ schedules *control.Schedules }

func (h schedulesHandler) list(ctx context.Context) (any, error) {
	list, err := h.schedules.List(ctx)
	return map[string]any{"schedules": list}, err
}

// change returns the handler that calls do for a schedule, and answers with the schedule.
func (h schedulesHandler) change(do func(schedules *control.Schedules, ctx context.Context, name, by string) error) handler {
	return func(r *request) (any, error) {
		who, err := h.read(r)
		if err == nil {
			err = do(h.schedules, r.Context(), r.id, who)
		}
		if err != nil {
			return nil, err
		}
		return h.schedules.Get(r.Context(), r.id)
	}
}

// run starts a run of a schedule.
func (h schedulesHandler) run(r *request) (any, error) {
	who, err := h.read(r)
	if err != nil {
		return nil, err
	}
	return r.started(h.schedules.Run(r.Context(), r.id, who))
}

// read decodes the body of a request about a schedule, and returns the name of the sender. If
// the schedule does not exist, it returns an error.
func (h schedulesHandler) read(r *request) (who string, err error) {
	who, o, err := r.change()
	if err == nil {
		err = o.fields()
	}
	if err == nil {
		_, err = h.schedules.Get(r.Context(), r.id)
	}
	return who, err
}

// chartsHandler handles the requests for charts.
type chartsHandler struct {
	charts    *admin.Charts // nil if the server counts nothing
	workflows *control.Definitions
}

func (h chartsHandler) show(r *request) (any, error) {
	q := r.query("range", "workflow")
	if q.err != nil {
		return nil, q.err
	}
	if h.charts == nil {
		return nil, control.NewError(control.CodeNotFound, "this server has no charts", "")
	}
	name, workflow := q.values["range"], q.values["workflow"]
	if name == "" {
		name = admin.RangeNames[0]
	}
	chart, err := h.charts.Get(workflow, name)
	if err == nil && workflow != timeseries.Other {
		err = h.workflows.Check(r.Context(), workflow)
	}
	return chart, err
}
