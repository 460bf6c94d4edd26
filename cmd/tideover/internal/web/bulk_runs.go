package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// errand is something that is done with many runs.
type errand struct {
	name     string
	label    string
	verb     string // as it is asked for: verb, number of runs, how
	how      string
	past     string
	states   []string // that it is done with unless states are named
	possible []string // that it can be done with
	text     string
	danger   bool
	do       func(e *engine.Engine, ctx context.Context, id, by string) error
}

var unfinished = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused"}

var errands = []errand{
	{
		name: "retry", label: "Retry all", verb: "Retry", past: "put back to work", states: []string{"dead"}, possible: []string{"dead"}, do: (*engine.Engine).Retry,
		text: "Steps that failed get a new set of attempts; what succeeded is kept.",
	},
	{
		name: "latest", label: "Retry all with the current definition", verb: "Retry", how: " with the current definition", past: "replaced by new runs",
		states: []string{"dead"}, possible: []string{"dead"}, do: replaceByLatest,
		text: "A new run takes the place of each. It keeps the results of the steps that are the same.",
	},
	{
		name: "cancel", label: "Cancel all", verb: "Cancel", past: "canceled", states: unfinished, possible: append([]string{"dead"}, unfinished...), danger: true, do: (*engine.Engine).Cancel,
		text: "Their steps are told to end, and what they still return is dropped. This can't be undone.",
	},
}

// replaceByLatest continues a run with the current definition.
func replaceByLatest(e *engine.Engine, ctx context.Context, id, by string) error {
	i, err := e.Get(ctx, id)
	if err == nil {
		err = repeatable(i, "latest")
	}
	if err == nil {
		_, err = e.RetryLatest(ctx, id, engine.Latest{}, by)
	}
	return err
}

// errandOf returns what a request wants to be done with many runs.
func errandOf(r *http.Request) (*errand, error) {
	name := r.PathValue("action")
	for i := range errands {
		if errands[i].name == name {
			return &errands[i], nil
		}
	}
	return nil, fmt.Errorf("%w: nothing is called %q", engine.ErrNotFound, name)
}

// of returns the states of runs that match the query and that it can be done with.
func (e *errand) of(q query) []string {
	if len(q.States) == 0 {
		return e.states
	}
	return slices.DeleteFunc(slices.Clone(q.States), func(s string) bool { return !slices.Contains(e.possible, s) })
}

// words returns what it is called, and what it means. To cancel what is dead anyhow
// is to discard it.
func (e *errand) words(states []string) (verb, what string) {
	if e.danger && len(states) == 1 && states[0] == "dead" {
		return "Discard", "Nobody will retry them. Their history is kept for a while."
	}
	return e.verb, e.text
}

// bulkOffers returns what can be done with all that match a query. All runs there
// are is nothing that somebody means.
func bulkOffers(q query) (list []offer) {
	if !q.Narrow() {
		return nil
	}
	q.After, q.Order = "", orders[0]
	for i := range errands {
		if e := &errands[i]; len(e.of(q)) > 0 {
			list = append(list, offer{e.name, e.label, q.url("/bulk/" + e.name), e.danger})
		}
	}
	return list
}

// bulkFilter returns the runs that a query means, as far as something can be done
// with them.
func (h *handler) bulkFilter(r *http.Request, e *errand, q query) (engine.Filter, error) {
	q.After = ""
	f := q.filter()
	f.States = e.of(q)
	if !q.Narrow() || len(f.States) == 0 {
		return f, fmt.Errorf("%w: no run is meant that this can be done with", engine.ErrState)
	}
	if q.Group == "" {
		return f, nil
	}
	g, err := h.groupOf(r, q.Group)
	if err != nil {
		return f, err
	}
	f.States, f.Workflow, f.ErrorLike, f.Exclude = []string{"dead"}, g.Workflow, g.Pattern, nil
	return f, nil
}

// counted is how many runs are counted one by one before somebody is asked.
const counted = 10_000

// matches counts the runs of a filter, and reports whether there are more. What
// the engine counts anyway is not counted again.
func (h *handler) matches(ctx context.Context, q query, f engine.Filter) (n int, more bool, err error) {
	if f.Search == "" && f.ErrorLike == "" && f.MinAttempts == 0 && q.Since.IsZero() && q.Until.IsZero() {
		t, err := h.totals(ctx, true)
		return t.count(q, f.States), false, err
	}
	f.Limit = 1000
	for {
		list, err := h.Engine.List(ctx, f)
		n += len(list.Runs)
		if err != nil || list.Next == "" || n >= counted {
			return n, list.Next != "", err
		}
		f.After = list.Next
	}
}

// count returns how many runs of the query's workflow are in one of the states.
func (t *totals) count(q query, states []string) (n int) {
	for _, w := range t.Stats.Workflows {
		if (q.Workflow == "" || q.Workflow == w.Name) && !q.leaves(w.Name) {
			for _, s := range states {
				n += w.States[s]
			}
		}
	}
	return n
}

// askBulk asks whether something shall be done with all runs that match.
func (h *handler) askBulk(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	e, err := errandOf(r)
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	now := time.Now()
	f, err := h.bulkFilter(r, e, q)
	f.Until = earlier(f.Until, now)
	n, more := 0, false
	if err == nil {
		n, more, err = h.matches(r.Context(), q, f)
	}
	if err != nil {
		h.fail(w, r, groupStatus(err), err)
		return
	}
	number := strconv.Itoa(n)
	if more {
		number = "more than " + number
	}
	verb, what := e.words(f.States)
	h.pose(w, r, http.StatusOK, &question{
		Title: fmt.Sprintf("%s %s%s?", verb, strings.Replace(textfmt.Plural(n, "run"), strconv.Itoa(n), number, 1), e.how), Button: verb + " " + number, Danger: e.danger,
		Text:   fmt.Sprintf("All that are %s and match: %s. Runs that begin from now on are left alone. %s", strings.Join(f.States, ", "), h.Redact(said(q, &f)), what),
		Action: "/bulk/" + e.name, Back: back(q),
		Fields: []fact{{"query", q.encode()}, {"until", strconv.FormatInt(now.UnixMilli(), 10)}},
	})
}

// said says which runs a filter means.
func said(q query, f *engine.Filter) string {
	var words []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(f.Workflow != "", "workflow %s", f.Workflow)
	add(f.Search != "", "search %q", f.Search)
	add(f.ErrorLike != "", "error like %q", firstLine(f.ErrorLike, 160))
	add(f.MinAttempts > 0, "at least %d attempts", f.MinAttempts)
	add(!q.Since.IsZero(), "created after %s", stamp(q.Since))
	add(!q.Until.IsZero(), "created before %s", stamp(q.Until))
	if len(words) == 0 {
		return "any workflow"
	}
	return strings.Join(words, ", ")
}

// back returns where somebody came from who asked.
func back(q query) string {
	if q.Group != "" {
		return query{Group: q.Group, Internal: q.Internal, Order: orders[0]}.url("/dead")
	}
	return q.url("/runs")
}

// earlier returns the earlier of two times, of which the first may be none.
func earlier(t, or time.Time) time.Time {
	if !t.IsZero() && t.Before(or) {
		return t
	}
	return or
}

// doBulk does something with all runs that matched when it was asked for.
func (h *handler) doBulk(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	e, err := errandOf(r)
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	values, err := url.ParseQuery(r.PostForm.Get("query"))
	asked, bad := strconv.ParseInt(r.PostForm.Get("until"), 10, 64)
	if err != nil || bad != nil {
		h.fail(w, r, http.StatusBadRequest, errors.New("the form does not say which runs are meant"))
		return
	}
	q := parseQuery(values)
	f, err := h.bulkFilter(r, e, q)
	if err != nil {
		h.fail(w, r, groupStatus(err), err)
		return
	}
	f.Until = earlier(f.Until, earlier(time.UnixMilli(asked), time.Now()))
	q.After = ""
	to := q.url("/runs")
	if q.Group != "" {
		to = "/dead" // nobody may be left in the group
	}
	h.doAll(w, r, e, f, to)
}
