package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
)

// Limits of lists and waits.
const (
	defaultLimit = 100
	maxLimit     = control.MaxBulk
	maxWait      = 10 * time.Minute
)

// query is the query of a request, in which each parameter occurs at most once.
type query map[string]string

// queryOf returns the query. A parameter that is not known is an error.
func queryOf(r *http.Request, known ...string) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, control.Invalid("", "the query can't be read: %v", err)
	}
	q := query{}
	for name, v := range values {
		switch {
		case !slices.Contains(known, name):
			p := control.Invalid(name, "unknown parameter")
			if len(known) > 0 {
				p.Hint = "want one of " + strings.Join(known, ", ")
			}
			return nil, p
		case len(v) > 1:
			return nil, control.Invalid(name, "is given twice")
		case !utf8.ValidString(v[0]) || strings.ContainsRune(v[0], 0):
			return nil, control.Invalid(name, "is not text")
		}
		q[name] = v[0]
	}
	return q, nil
}

func (q query) number(name string, def, most int) (int, error) {
	text, ok := q[name]
	if !ok || text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, control.Invalid(name, "%q is not a number from 1 to %d", control.Excerpt(text), most)
	}
	return n, nil
}

// yes parses a boolean. A parameter that is missing is false.
func (q query) yes(name string) (bool, error) {
	text := q[name]
	if text == "" {
		return false, nil
	}
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, control.Invalid(name, "%q is neither true nor false", control.Excerpt(text))
	}
	return yes, nil
}

// moment parses a time, or a duration that means that long ago.
func (q query) moment(name string) (time.Time, error) {
	text := q[name]
	if text == "" {
		return time.Time{}, nil
	}
	t, err := control.ParseMoment(text, -1)
	if err != nil {
		return time.Time{}, control.Invalid(name, "%v", err)
	}
	return t, nil
}

var filterKeys = []string{"state", "workflow", "search", "error", "since", "until", "min_attempts", "internal", "order", "limit", "after"}

// filter parses the filter of a list.
func (q query) filter() (f control.Filter, err error) {
	f = control.Filter{Workflow: q["workflow"], Search: q["search"], Error: q["error"], Order: q["order"], After: q["after"]}
	if q["state"] != "" {
		f.States = strings.Split(q["state"], ",")
	}
	if f.Since, err = q.moment("since"); err != nil {
		return f, err
	}
	if f.Until, err = q.moment("until"); err != nil {
		return f, err
	}
	if f.MinAttempts, err = q.number("min_attempts", 0, 1<<31-1); err != nil {
		return f, err
	}
	if f.Internal, err = q.yes("internal"); err != nil {
		return f, err
	}
	if f.Limit, err = q.number("limit", defaultLimit, maxLimit); err != nil {
		return f, err
	}
	f.Fresh = f.After == ""
	return f, f.Validate()
}
