package pages

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"
)

// states are all states of runs, in the order in which they are shown.
var states = []string{"running", "waiting", "queued", "scheduled", "needs-handler", "paused", "undoing", "dead", "succeeded", "canceled", "replaced"}

// Newest is the order of lists that begin with the newest run.
const Newest = "newest"

var orders = []string{Newest, "oldest", "next"}

// RowsPerPage is how many runs are listed at once.
const RowsPerPage = 50

// maxTags is how many tags a query can have: as many as a run.
const maxTags = 16

// Query is the filter of a list of runs, as it is in a URL.
type Query struct {
	States   []string
	Workflow string
	Search   string
	Attempts int      // least number of attempts
	Tags     []string // all of them, each written as name=value
	Since    time.Time
	Until    time.Time // exclusive
	Order    string    // newest, oldest, next
	After    string    // cursor: the end of the previous page
	Group    string    // of dead letters, see groupKey
	Asking   bool      // runs that ask a question
	Internal bool      // include runs of internal workflows
}

// parseQuery parses the query of a URL. It ignores unknown parameters and values: the list of runs
// redirects the browser to the URL without them, so that the URL shows the filter in effect.
func parseQuery(v url.Values) Query {
	q := Query{
		Workflow: v.Get("workflow"), Search: strings.TrimSpace(v.Get("q")), After: v.Get("after"), Group: v.Get("group"),
		Order: v.Get("order"),
	}
	for _, s := range states {
		if slices.Contains(v["state"], s) {
			q.States = append(q.States, s)
		}
	}
	if n, err := strconv.Atoi(v.Get("attempts")); err == nil && n > 0 {
		q.Attempts = min(n, 1e6)
	}
	for _, tag := range v["tag"] {
		if name, value, ok := strings.Cut(strings.TrimSpace(tag), "="); ok && name != "" && value != "" && len(q.Tags) < maxTags {
			q.Tags = append(q.Tags, name+"="+value)
		}
	}
	q.Since, q.Until = moment(v.Get("since")), moment(v.Get("until"))
	q.Internal, q.Asking = v.Get("internal") == "1", v.Get("asking") == "1"
	if !slices.Contains(orders, q.Order) {
		q.Order = Newest
	}
	return q
}

// moment parses a time, a day, or a duration such as 2h, which means that long ago. It returns zero
// for any other text.
func moment(text string) time.Time {
	text = strings.TrimSpace(text)
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		text = day.Format(time.RFC3339)
	}
	t, err := control.ParseMoment(text, -1)
	if err != nil {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

// encode returns the query as the query string of a URL, without empty values and defaults.
func (q Query) encode() string {
	v := url.Values{"workflow": {q.Workflow}, "q": {q.Search}, "after": {q.After}, "group": {q.Group}, "state": q.States, "tag": q.Tags}
	if q.Internal {
		v.Set("internal", "1")
	}
	if q.Asking {
		v.Set("asking", "1")
	}
	for key, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			v.Set(key, t.Format(time.RFC3339))
		}
	}
	if q.Attempts > 0 {
		v.Set("attempts", strconv.Itoa(q.Attempts))
	}
	if q.Order != Newest {
		v.Set("order", q.Order)
	}
	maps.DeleteFunc(v, func(_ string, list []string) bool { return len(list) == 0 || list[0] == "" })
	return v.Encode()
}

// URL returns the URL of a page with the query.
func (q Query) URL(path string) string {
	if s := q.encode(); s != "" {
		return path + "?" + s
	}
	return path
}

// pages returns the URL of the first page of a list, and the URL of the page after the cursor.
// first is "" if the current page is the first one; more is "" if there is no cursor.
func (q Query) pages(path, cursor string) (first, more string) {
	if q.After != "" {
		q.After = ""
		first = q.URL(path)
	}
	if q.After = cursor; cursor != "" {
		more = q.URL(path)
	}
	return first, more
}

// Filter converts the query to a filter of runs. It does not contain the group.
func (q Query) Filter() control.Filter {
	return control.Filter{
		States: q.States, Workflow: q.Workflow, Internal: q.Internal, Search: q.Search, MinAttempts: q.Attempts, Tags: q.Tags, Asking: q.Asking,
		Since: q.Since, Until: q.Until, Order: q.Order, After: q.After, Limit: RowsPerPage,
	}
}

// leaves reports whether the query leaves out the runs of a workflow because it is internal.
func (q Query) leaves(workflow string) bool {
	return !q.Internal && workflow != q.Workflow && control.Internal(workflow)
}

// selects reports whether the query has a condition that the counters of the engine do not have.
func (q Query) selects() bool {
	return q.Search != "" || q.Attempts > 0 || len(q.Tags) > 0 || q.Asking || q.Group != "" || !q.Since.IsZero() || !q.Until.IsZero()
}

// Narrow reports whether the query has any condition, so that it may match fewer than all runs.
func (q Query) Narrow() bool {
	return len(q.States) > 0 || q.Workflow != "" || q.selects()
}
