package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/internal/console/control"
)

// runsBody is the content of the page with the list of runs.
type runsBody struct {
	Query     query
	Totals    totals
	Chips     []chip
	Workflows []string
	Rows      []row
	Bulk      []offer // actions on all runs that match
	Choose    bool    // the user may choose runs and change them
	Hidden    *link   // the list that includes runs of internal workflows; nil if there are none
	First     string  // URL of the first page; "" if this is it
	More      string  // URL of the next page; "" if there is none
	Behind    int     // runs that the list does not contain yet
	Silent    string  // which shards did not answer
}

// chip is a link that filters the list by a state.
type chip struct {
	State string // "" for all
	Label string
	Count string // "" if the runs are not counted
	URL   string
	On    bool // the list is filtered by the state
	Total bool // Count includes runs that were deleted
}

// chips returns a link for each state, with the number of runs that match the query.
func chips(n stateCounts, q query) []chip {
	q.After = ""
	on := q.States
	all := q
	all.States, all.Asking = nil, false
	chips := []chip{{Label: "all", URL: all.url("/runs"), On: len(on) == 0 && !q.Asking}}
	asking := q
	asking.Asking = !q.Asking
	for _, s := range states {
		q.States = []string{s}
		chips = append(chips, chip{
			State: s, Label: strings.ReplaceAll(s, "-", " "), Count: n.text(s), URL: q.url("/runs"),
			On: slices.Contains(on, s), Total: n.ever && n.text(s) != "" && (s == "succeeded" || s == "canceled"),
		})
	}
	return append(chips, chip{State: "asking", Label: "asks", URL: asking.url("/runs"), On: q.Asking})
}

// runsPage shows the list of runs.
type runsPage struct{ *streams }

func (h runsPage) serve(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	q.Group = ""
	given := r.URL.Query()
	if done(given) != "" {
		for _, name := range []string{"did", "n", "left"} {
			given.Del(name)
		}
	}
	if q.encode() != given.Encode() {
		http.Redirect(w, r, q.url("/runs"), http.StatusSeeOther)
		return
	}
	h.showList(w, r, "/runs", q, h.load)
}

// listLoader reads the data of a page of a list.
type listLoader func(ctx context.Context, q query, now time.Time) (part, error)

// showList shows a page of a list. If the cursor is not valid, it redirects to the first page.
func (h *layout) showList(w http.ResponseWriter, r *http.Request, path string, q query, load listLoader) {
	p, err := load(r.Context(), q, time.Now())
	if err != nil {
		e := control.AsError(err)
		if q.After == "" || e.Field != "after" && e.Code != control.CodeInternal {
			h.fail(w, r, err)
			return
		}
		q.After = "" // the cursor belongs to another list, is outdated, or can't be parsed
		http.Redirect(w, r, q.url(path), http.StatusSeeOther)
		return
	}
	p.data.Flash = done(r.URL.Query())
	h.show(w, r, http.StatusOK, p.template, p.data)
}

func (h runsPage) live(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	h.stream(w, r, "", func(ctx context.Context, now time.Time) (part, error) { return h.load(ctx, q, now) })
}

func (h runsPage) load(ctx context.Context, q query, now time.Time) (part, error) {
	// Read the totals first: if they say that lists are complete, the list below is complete.
	t, err := h.totals(ctx, q.Internal)
	if err != nil {
		return part{}, err
	}
	rows, list, err := h.list(ctx, q.filter())
	if err != nil {
		return part{}, err
	}
	counts, err := h.countStates(ctx, &t, q)
	if err != nil {
		return part{}, err
	}
	b := runsBody{Query: q, Totals: t, Chips: chips(counts, q), Workflows: h.workflows(t, q), Rows: rows, Behind: list.Behind, Silent: silentText(t.Stats.Silent, list.Silent)}
	if b.Choose = !httpserver.CallerOf(ctx).ReadOnly; b.Choose {
		b.Bulk = bulkOffers(q, counts)
	}
	if !q.Internal && q.Workflow == "" && t.Others {
		more := q
		more.Internal, more.After = true, ""
		b.Hidden = &link{URL: more.url("/runs")}
	}
	b.First, b.More = q.pages("/runs", list.Next)
	return part{
		template: "runs", behind: t.Stats.Behind > 0 || list.Behind > 0,
		data: page{Title: "Runs", Place: "runs", Live: q.url("/live/runs"), Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}
