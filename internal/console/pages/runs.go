package pages

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"
)

// runsBody is the content of the page with the list of runs.
type runsBody struct {
	Query     Query
	Totals    Totals
	Chips     []chip
	Workflows []string
	Rows      rows
	Bulk      []Offer // actions on all runs that match
	Choose    bool    // the user may choose runs and change them
	Hidden    *Link   // the list that includes runs of internal workflows; nil if there are none
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

// chips returns a link for all runs, one for those that ask, and one for each state. Each has the number
// of runs that match the query; one without runs is left out, unless it is chosen.
func chips(n stateCounts, q Query) []chip {
	q.After = ""
	on := q.States
	all := q
	all.States, all.Asking = nil, false
	list := []chip{{Label: "all", URL: all.URL("/runs"), On: len(on) == 0 && !q.Asking}}
	asking := q
	asking.Asking = !q.Asking
	if n.asking > 0 || q.Asking {
		list = append(list, chip{State: "asking", Label: runStates["asking"].Label, Count: n.number(n.asking), URL: asking.URL("/runs"), On: q.Asking})
	}
	for _, s := range states {
		q.States = []string{s}
		c := chip{
			State: s, Label: strings.ReplaceAll(s, "-", " "), Count: n.text(s), URL: q.URL("/runs"),
			On: slices.Contains(on, s), Total: n.ever && (s == "succeeded" || s == "canceled"),
		}
		if !n.none(s) || c.On {
			list = append(list, c)
		}
	}
	return list
}

// runsPage shows the list of runs.
type runsPage struct{ *Streams }

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
		h.Redirect(w, r, q.URL("/runs"))
		return
	}
	h.showList(w, r, "/runs", q, h.load)
}

// listLoader reads the data of a page of a list.
type listLoader func(ctx context.Context, q Query, now time.Time) (Part, error)

// showList shows a page of a list. If the cursor is not valid, it redirects to the first page.
func (h *Layout) showList(w http.ResponseWriter, r *http.Request, path string, q Query, load listLoader) {
	p, err := load(r.Context(), q, time.Now())
	if err != nil {
		e := control.AsError(err)
		if q.After == "" || e.Field != "after" && e.Code != control.CodeInternal {
			h.Fail(w, r, err)
			return
		}
		q.After = "" // the cursor belongs to another list, is outdated, or can't be parsed
		h.Redirect(w, r, q.URL(path))
		return
	}
	p.Data.Flash = done(r.URL.Query())
	h.Show(w, r, http.StatusOK, p.Template, p.Data)
}

func (h runsPage) live(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	h.Stream(w, r, "", func(ctx context.Context, now time.Time) (Part, error) { return h.load(ctx, q, now) })
}

func (h runsPage) load(ctx context.Context, q Query, now time.Time) (Part, error) {
	// Read the totals first: if they say that lists are complete, the list below is complete.
	t, err := h.Totals(ctx, q.Internal)
	if err != nil {
		return Part{}, err
	}
	rows, list, err := h.List(ctx, q.Filter())
	if err != nil {
		return Part{}, err
	}
	counts, err := h.countStates(ctx, &t, q)
	if err != nil {
		return Part{}, err
	}
	b := runsBody{Query: q, Totals: t, Chips: chips(counts, q), Workflows: h.workflows(t, q), Rows: rows, Behind: list.Behind, Silent: SilentText(t.Stats.Silent, list.Silent)}
	if b.Choose = !CallerOf(ctx).ReadOnly; b.Choose {
		b.Bulk = bulkOffers(q, counts)
	}
	if !q.Internal && q.Workflow == "" && t.Others {
		more := q
		more.Internal, more.After = true, ""
		b.Hidden = &Link{URL: more.URL("/runs")}
	}
	b.First, b.More = q.pages("/runs", list.Next)
	return Part{
		Template: "runs", Behind: t.Stats.Behind > 0 || list.Behind > 0,
		Data: Page{Title: "Runs", Place: "runs", Live: q.URL("/live/runs"), Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}
