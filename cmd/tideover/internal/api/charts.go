package api

import (
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
)

// chartsHandler handles the requests for charts.
type chartsHandler struct {
	charts *control.Charts // nil if the server counts nothing
	runs   *control.Runs
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
		name = control.RangeNames[0]
	}
	chart, err := h.charts.Get(workflow, name)
	if err == nil && workflow != timeseries.Other {
		err = h.runs.CheckWorkflow(r.Context(), workflow)
	}
	return chart, err
}
