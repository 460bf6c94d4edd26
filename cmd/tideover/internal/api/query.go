package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of lists.
const (
	defaultLimit = 100
	maxLimit     = 1000
	maxWait      = 10 * time.Minute
)

// query is the query of a request, each part of which is given once.
type query map[string]string

// queryOf refuses what no part of the request knows.
func queryOf(r *http.Request, known ...string) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("", "the query can't be read: %v", err)
	}
	q := query{}
	for name, v := range values {
		switch {
		case !slices.Contains(known, name):
			p := bad(name, "there is no such parameter")
			if len(known) > 0 {
				p.Hint = "there are " + strings.Join(known, ", ")
			}
			return nil, p
		case len(v) > 1:
			return nil, bad(name, "is given twice")
		case !utf8.ValidString(v[0]) || strings.ContainsRune(v[0], 0):
			return nil, bad(name, "is not text")
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
		return 0, bad(name, "%q is not a number from 1 to %d", excerpt(text), most)
	}
	return n, nil
}

// yes reads whether something is wanted.
func (q query) yes(name string) (bool, error) {
	text := q[name]
	if text == "" {
		return false, nil
	}
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, bad(name, "%q is neither true nor false", excerpt(text))
	}
	return yes, nil
}

// moment reads a time, or a duration that stands for that long ago.
func (q query) moment(name string) (time.Time, error) {
	text := q[name]
	if text == "" {
		return time.Time{}, nil
	}
	t, err := ParseMoment(text, -1)
	if err != nil {
		return time.Time{}, bad(name, "%v", err)
	}
	return t, nil
}

// ParseMoment reads a time such as 2026-11-15T08:00:00Z, or a duration from now
// in the direction of sign.
func ParseMoment(text string, sign int) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, checkMoment(t)
	}
	d, err := ParseSpan(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-11-15T08:00:00Z nor a duration such as 2h", excerpt(text))
	}
	return time.Now().Add(time.Duration(sign) * d), nil
}

// checkMoment refuses times that can't be stored.
func checkMoment(t time.Time) error {
	if y := t.Year(); y < 1970 || y > 2200 {
		return fmt.Errorf("the year %d is not between 1970 and 2200", y)
	}
	return nil
}

var filterKeys = []string{"state", "workflow", "search", "error", "since", "until", "min_attempts", "internal", "order", "limit", "after"}

// filter reads the filter of a list.
func (q query) filter() (f Filter, err error) {
	f = Filter{Workflow: q["workflow"], Search: q["search"], Error: q["error"], Order: q["order"], After: q["after"]}
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
	return f, f.check()
}

// values is the inverse of filter.
func (f Filter) values() url.Values {
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

// check refuses values that would find nothing, or something else.
func (f *Filter) check() error {
	for _, s := range f.States {
		if !slices.Contains(stateNames, s) {
			p := bad("state", "there is no state %q", excerpt(s))
			p.Hint = "there are " + strings.Join(stateNames, ", ")
			return p
		}
	}
	if f.MinAttempts < 0 {
		return bad("min_attempts", "%d is negative", f.MinAttempts)
	}
	switch f.Order {
	case "", "newest", "oldest", "next":
	default:
		return bad("order", "%q is not newest, oldest or next", excerpt(f.Order))
	}
	return nil
}
