package api

import (
	"maps"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/internal/console/control"
)

// bulk returns the handler that applies an action to many runs.
func (h runsHandler) bulk(action control.BulkAction) handler {
	return func(r *request) (any, error) {
		who, o, err := r.change()
		if err != nil {
			return nil, err
		}
		b, err := readBulk(o, action)
		if err != nil {
			return nil, err
		}
		do := action
		if b.Latest {
			do = control.BulkRetryLatest
		}
		ctx, cancel := httpserver.LongRequest(r.w, r.Request, 10*time.Minute)
		defer cancel()
		return h.runs.Bulk(ctx, do, b, who)
	}
}

// readBulk decodes and validates the body of a request to change many runs.
func readBulk(o object, action control.BulkAction) (b control.Bulk, err error) {
	var filter object
	b.Limit = maxLimit
	fields := []any{"ids", &b.IDs, "filter", &filter, "limit", &b.Limit, "after", &b.After}
	if action == control.BulkRetry {
		fields = append(fields, "latest", &b.Latest)
	}
	if err := o.fields(fields...); err != nil {
		return b, err
	}
	if filter != nil && len(b.IDs) == 0 {
		if len(filter) == 0 || len(filter) == 1 && filter["internal"] != nil {
			return b, control.Invalid("filter", "is empty, which would select all runs")
		}
		if b.Filter, err = readFilter(filter); err != nil {
			return b, err
		}
	} else if filter != nil {
		b.Filter = new(control.Filter) // Validate rejects a filter together with ids
	}
	return b, b.Validate(action)
}

// readFilter decodes the filter of a request to change many runs.
func readFilter(o object) (*control.Filter, error) {
	given := maps.Clone(o)
	f := new(control.Filter)
	var since, until string
	err := o.fields("state", &f.States, "workflow", &f.Workflow, "search", &f.Search, "error", &f.Error,
		"since", &since, "until", &until, "min_attempts", &f.MinAttempts, "tag", &f.Tags, "asking", &f.Asking, "internal", &f.Internal)
	if err != nil {
		return nil, err
	}
	if err := given.rejectEmpty(f, since, until); err != nil {
		return nil, err
	}
	q := query{values: map[string]string{"since": since, "until": until}}
	f.Since, f.Until = q.moment("since"), q.moment("until")
	return f, q.err
}

// rejectEmpty returns an error if a field of a filter is present but empty. Such a field would
// match every run: an empty variable in a script must not change all runs.
func (o object) rejectEmpty(f *control.Filter, since, until string) error {
	blank := func(text string) bool { return strings.TrimSpace(text) == "" }
	for _, c := range []struct {
		name  string
		empty bool
	}{
		{"state", len(f.States) == 0}, {"workflow", blank(f.Workflow)}, {"search", blank(f.Search)}, {"error", blank(f.Error)},
		{"since", blank(since)}, {"until", blank(until)}, {"min_attempts", f.MinAttempts == 0},
		{"tag", len(f.Tags) == 0}, {"asking", !f.Asking},
	} {
		if _, given := o[c.name]; given && c.empty {
			return control.Invalid(c.name, "is empty, which would select all runs; leave it out or give a value")
		}
	}
	return nil
}
