package api

import (
	"context"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
)

// requestsHandler handles requests about the requests of the gateway.
type requestsHandler struct{ requests *admin.Requests }

func (h requestsHandler) list(r *request) (any, error) {
	q := r.query("provider", "outcome", "status", "min_duration", "limit")
	f := gateway.RequestFilter{
		Provider: q.values["provider"], Outcome: q.values["outcome"], Status: q.values["status"],
		Least: q.duration("min_duration"), Limit: q.number("limit", admin.DefaultRequests, admin.MaxRequests),
	}
	if q.err != nil {
		return nil, q.err
	}
	return h.requests.List(f)
}

func (h requestsHandler) show(_ context.Context, id string) (gateway.RequestInfo, error) {
	return h.requests.Get(id)
}

// duration parses a duration such as 2s. It returns 0 if the parameter is missing.
func (q *query) duration(name string) time.Duration {
	text := q.values[name]
	if text == "" {
		return 0
	}
	d, err := control.ParseSpan(text)
	if err != nil {
		q.fail(name, "%v", err)
	}
	return d
}
