package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// bulkActions handles the actions on many runs.
type bulkActions struct {
	*Data
	jobs *bulkJobs
}

// bulkAction has the texts for an action on many runs.
type bulkAction struct {
	name   control.BulkAction
	label  string // of the button
	verb   string // the title of the question is: verb, number of runs, how
	how    string
	past   string // for the sentence after the action: "3 retried."
	text   string // explains the action
	danger bool
}

var bulkKinds = []bulkAction{
	{
		name: control.BulkRetry, label: "Retry all", verb: "Retry", past: "retried",
		text: "Failed steps get a new set of attempts; the results of succeeded steps are kept.",
	},
	{
		name: control.BulkRetryLatest, label: "Retry all with the current definition", verb: "Retry", how: " with the current definition", past: "replaced by new runs",
		text: "A new run replaces each of them. It keeps the results of unchanged steps.",
	},
	{
		name: control.BulkCancel, label: "Cancel all", verb: "Cancel", past: "canceled", danger: true,
		text: "Their running steps are canceled, and their results are discarded. This can't be undone.",
	},
}

// bulkActionOf returns the action that a request names.
func bulkActionOf(r *http.Request) (*bulkAction, error) {
	name := r.PathValue("action")
	i := slices.IndexFunc(bulkKinds, func(a bulkAction) bool { return string(a.name) == name })
	if i < 0 {
		return nil, UnknownAction(name)
	}
	return &bulkKinds[i], nil
}

// states returns those states of the query in which the action is possible. For a query without
// states it returns the default states of the action.
func (e *bulkAction) states(q Query) []string {
	if len(q.States) == 0 {
		return e.name.DefaultStates()
	}
	return slices.DeleteFunc(slices.Clone(q.States), func(s string) bool { return !slices.Contains(e.name.PossibleStates(), s) })
}

// words returns the verb of the action and its explanation, which differs for dead runs.
func (e *bulkAction) words(states []string) (verb, what string) {
	if e.danger && len(states) == 1 && states[0] == "dead" {
		return e.verb, "They will not be retried. Their history is kept until their retention ends."
	}
	return e.verb, e.text
}

// bulkOffers returns the actions on all runs that match a query, if a run is in a state that allows the
// action. A query that matches every run has none, since a user could change all runs by mistake.
func bulkOffers(q Query, n stateCounts) (list []Offer) {
	if !q.Narrow() {
		return nil
	}
	q.After, q.Order = "", Newest
	for i := range bulkKinds {
		if e := &bulkKinds[i]; n.more || n.sum(e.states(q)) > 0 {
			list = append(list, e.offer(e.label, q.URL("/bulk/"+string(e.name))))
		}
	}
	return Fold(list)
}

// offer returns the button for the action.
func (e *bulkAction) offer(label, to string) Offer {
	return Offer{Name: string(e.name), Label: label, URL: to, Danger: e.danger, Text: e.text}
}

// only returns the run if the filter matches only one of n, for the question about it; else nil.
func (h bulkActions) only(ctx context.Context, n int, f control.Filter) *engine.Info {
	if n != 1 {
		return nil
	}
	f.Limit = 1
	rows, _, err := h.List(ctx, f)
	if err != nil || len(rows) == 0 {
		return nil
	}
	return &rows[0].Info
}

// filter returns the filter for the runs that match the query and allow the action. It returns an
// error if no run can match, or if the query matches every run.
func (h bulkActions) filter(ctx context.Context, e *bulkAction, q Query) (control.Filter, error) {
	q.After = ""
	f := q.Filter()
	f.States = e.states(q)
	if !q.Narrow() || len(f.States) == 0 {
		return f, fmt.Errorf("%w: the filter selects no run that allows this action", engine.ErrState)
	}
	if q.Group == "" {
		return f, nil
	}
	g, err := h.groupOf(ctx, q.Group)
	if err != nil {
		return f, err
	}
	f.States, f.Workflow, f.Error = []string{"dead"}, g.Workflow, g.Pattern
	return f, nil
}

// counted is the number of runs after which matches stops counting one by one.
const counted = 10_000

// matches counts the runs that match a filter. more reports that there are more than n, because it
// stopped counting. It uses the counters of the engine if the filter allows that.
func (h bulkActions) matches(ctx context.Context, q Query, f control.Filter) (n int, more bool, err error) {
	if !q.selects() {
		t, err := h.Totals(ctx, true)
		return t.byState(q).sum(f.States), false, err
	}
	f.Limit = 1000
	for {
		list, err := h.control.Runs.List(ctx, f)
		n += len(list.Runs)
		if err != nil || list.Next == "" || n >= counted {
			return n, list.Next != "", err
		}
		f.After = list.Next
	}
}

// question returns the confirmation question for an action on all runs that match a query.
func (h bulkActions) question(r *http.Request) (*Question, error) {
	q := parseQuery(r.URL.Query())
	e, err := bulkActionOf(r)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	f, err := h.filter(r.Context(), e, q)
	if err != nil {
		return nil, err
	}
	f.Until = earlier(f.Until, now)
	n, more, err := h.matches(r.Context(), q, f)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return &Question{Title: "No run matches", Text: "There is nothing to " + strings.ToLower(e.verb) + ".", Back: back(q)}, nil
	}
	number := strconv.Itoa(n)
	if more {
		number = "more than " + number
	}
	verb, what := e.words(f.States)
	return &Question{
		Title: fmt.Sprintf("%s %s%s?", verb, strings.Replace(textfmt.Plural(n, "run"), strconv.Itoa(n), number, 1), e.how), Button: verb + " " + number, Danger: e.danger,
		Text:   fmt.Sprintf("All runs that are %s and match: %s. Runs that start from now on are not affected. %s", strings.Join(f.States, ", "), h.Redact(describeFilter(q, &f)), what),
		Action: "/bulk/" + string(e.name), Back: back(q), Run: h.only(r.Context(), n, f),
		Fields: []Fact{{"query", q.encode()}, {"until", strconv.FormatInt(now.UnixMilli(), 10)}},
	}, nil
}

// describeFilter describes a filter in words.
func describeFilter(q Query, f *control.Filter) string {
	var words []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(f.Workflow != "", "workflow %s", f.Workflow)
	add(f.Search != "", "search %q", f.Search)
	add(f.Error != "", "error like %q", firstLine(f.Error, 160))
	add(f.MinAttempts > 0, "at least %d attempts", f.MinAttempts)
	add(len(f.Tags) > 0, "tagged %s", strings.Join(f.Tags, " and "))
	add(f.Asking, "asks a question")
	add(!q.Since.IsZero(), "created after %s", stamp(q.Since))
	add(!q.Until.IsZero(), "created before %s", stamp(q.Until))
	if len(words) == 0 {
		return "any workflow"
	}
	return strings.Join(words, ", ")
}

// back returns the URL of the list that a question belongs to.
func back(q Query) string {
	if q.Group != "" {
		return Query{Group: q.Group, Internal: q.Internal, Order: Newest}.URL("/dead")
	}
	return q.URL("/runs")
}

// earlier returns the earlier of two times. If t is zero, it returns or.
func earlier(t, or time.Time) time.Time {
	if !t.IsZero() && t.Before(or) {
		return t
	}
	return or
}

// act applies an action to the runs that match the query of the form, except those that started after
// the question was asked.
func (h bulkActions) act(r *http.Request) (did, to string, err error) {
	e, err := bulkActionOf(r)
	if err != nil {
		return "", "", err
	}
	values, err := url.ParseQuery(r.PostForm.Get("query"))
	asked, bad := strconv.ParseInt(r.PostForm.Get("until"), 10, 64)
	if err != nil || bad != nil {
		return "", "", control.Invalid("", "the form does not contain the filter of the runs: reload the page and try again")
	}
	q := parseQuery(values)
	f, err := h.filter(r.Context(), e, q)
	if err != nil {
		return "", "", err
	}
	f.Until = earlier(f.Until, earlier(time.UnixMilli(asked), time.Now()))
	q.After = ""
	to = q.URL("/runs")
	if q.Group != "" {
		to = "/dead" // not the page of the group, which may be empty after the action
	}
	total, more, err := h.matches(r.Context(), q, f)
	if err != nil {
		return "", "", err
	}
	if more {
		total = 0
	}
	return h.change(r, e, bulkTarget{filter: f, total: total, back: to})
}

// groupQuestion returns the confirmation question for retrying all runs of a group of dead letters.
func (h bulkActions) groupQuestion(r *http.Request) (*Question, error) {
	g, err := h.groupOf(r.Context(), r.URL.Query().Get("group"))
	if err != nil {
		return nil, err
	}
	return &Question{
		Title: fmt.Sprintf("Retry %s?", textfmt.Plural(g.Count, "dead letter")), Button: fmt.Sprintf("Retry %d", g.Count),
		Text:   fmt.Sprintf("All runs of workflow %s with an error like this: %s", g.Workflow, firstLine(h.Redact(g.Error), 200)),
		Action: "/dead/retry", Back: g.URL, Key: g.Key, Run: h.only(r.Context(), g.Count, control.Filter{States: []string{"dead"}, Workflow: g.Workflow, Error: g.Pattern}),
	}, nil
}

// retryGroup retries the runs of a group that were started before the request.
func (h bulkActions) retryGroup(r *http.Request) (did, to string, err error) {
	g, err := h.groupOf(r.Context(), r.PostForm.Get("group"))
	if err != nil {
		return "", "", err
	}
	f := control.Filter{States: []string{"dead"}, Workflow: g.Workflow, Error: g.Pattern, Until: time.Now()}
	return h.change(r, &bulkKinds[0], bulkTarget{filter: f, total: g.Count, back: "/dead"})
}

// done returns the sentence about the action that the query of a URL names; "" if the name is
// unknown. The URL does not contain the sentence itself, so that a link can't show any other text
// on the page.
func done(v url.Values) string {
	did := v.Get("did")
	i := slices.IndexFunc(bulkKinds, func(a bulkAction) bool { return string(a.name)+"-all" == did })
	if i < 0 {
		return runTexts[did]
	}
	n, _ := strconv.Atoi(v.Get("n"))
	left, _ := strconv.Atoi(v.Get("left"))
	text := fmt.Sprintf("%d %s.", max(n, 0), bulkKinds[i].past)
	if left > 0 {
		text += fmt.Sprintf(" %d skipped: their state did not allow it.", left)
	}
	return text
}
