package api

import "github.com/tideover/tideover/cmd/tideover/internal/control"

// chartsHandler handles the requests for charts.
type chartsHandler struct{ charts *control.Charts } // nil if the server counts nothing

func (h chartsHandler) show(r *request) (any, error) {
	q := r.query("range", "workflow")
	if q.err != nil {
		return nil, q.err
	}
	if h.charts == nil {
		return nil, control.NewError(control.CodeNotFound, "this server has no charts", "")
	}
	name := q.values["range"]
	if name == "" {
		name = control.RangeNames[0]
	}
	return h.charts.Get(q.values["workflow"], name)
}
