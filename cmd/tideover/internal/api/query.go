package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/console/control"
)

// Limits of lists and waits.
const (
	defaultLimit = 100             // runs in a page of a list
	maxLimit     = control.MaxBulk // runs in a page or a bulk request
	maxWait      = 10 * time.Minute
)

// query has the query parameters of a request. A parameter occurs at most once, except tag. err is
// the first error of parsing them.
type query struct {
	values map[string]string
	tags   []string
	err    error
}

// query parses the query of the request. A parameter that is not in known is an error.
func (r *request) query(known ...string) *query {
	q := &query{values: map[string]string{}}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		q.err = control.Invalid("", "the query can't be read: %v", err)
	}
	for name, v := range values {
		switch {
		case q.err != nil:
		case !slices.Contains(known, name):
			q.err = unknown(name, "parameter", known)
		case len(v) > 1 && name != "tag":
			q.fail(name, "is given twice")
		case slices.ContainsFunc(v, func(text string) bool { return !utf8.ValidString(text) || strings.ContainsRune(text, 0) }):
			q.fail(name, "must be UTF-8 text without NUL characters")
		}
		q.values[name] = v[0]
		if name == "tag" {
			q.tags = v
		}
	}
	return q
}

// fail sets the error of the query, unless it has one already.
func (q *query) fail(name, format string, args ...any) {
	if q.err == nil {
		q.err = control.Invalid(name, format, args...)
	}
}

func (q *query) number(name string, def, most int) int {
	text := q.values[name]
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		q.fail(name, "%q is not a number from 1 to %d", control.Excerpt(text), most)
	}
	return n
}

// yes parses a boolean parameter. def is the value if the parameter is missing.
func (q *query) yes(name string, def bool) bool {
	text := q.values[name]
	if text == "" {
		return def
	}
	yes, err := strconv.ParseBool(text)
	if err != nil {
		q.fail(name, "%q is neither true nor false", control.Excerpt(text))
	}
	return yes
}

// moment parses a time, or a duration such as 2h, which means that long ago. It returns the zero
// time if the parameter is missing.
func (q *query) moment(name string) (t time.Time) {
	text := q.values[name]
	if text == "" {
		return t
	}
	t, err := control.ParseMoment(text, -1)
	if err != nil {
		q.fail(name, "%v", err)
	}
	return t
}

var filterKeys = []string{"state", "workflow", "search", "error", "since", "until", "min_attempts", "tag", "asking", "internal", "order", "limit", "after"}

// filter converts the parameters of a list of runs to a filter.
func (q *query) filter() (control.Filter, error) {
	v := q.values
	f := control.Filter{
		Workflow: v["workflow"], Search: v["search"], Error: v["error"], Order: v["order"],
		Since: q.moment("since"), Until: q.moment("until"), MinAttempts: q.number("min_attempts", 0, 1<<31-1),
		Tags: q.tags, Asking: q.yes("asking", false), Internal: q.yes("internal", false), Limit: q.number("limit", defaultLimit, maxLimit),
		After: v["after"], Fresh: v["after"] == "",
	}
	if v["state"] != "" {
		f.States = strings.Split(v["state"], ",")
	}
	if q.err != nil {
		return f, q.err
	}
	return f, f.Validate()
}
