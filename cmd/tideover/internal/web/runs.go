package web

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/engine"
)

// runsBody is the list of runs.
type runsBody struct {
	Query     query
	Totals    totals
	Chips     []chip
	Workflows []string
	Rows      []row
	Bulk      []offer // what can be done with all that match
	Hidden    *link   // to the list with the runs that are left out
	First     string  // address of the first page; "" if this is it
	More      string  // address of the next page
	Behind    int     // runs that the search does not know yet
	Silent    string  // which shards did not answer
}

// row is a run in a list.
type row struct {
	engine.Info
	URL string
	By  string // who set the wait
}

// chip is a state to filter by.
type chip struct {
	State string // "" for all
	Label string
	Count int
	URL   string
	On    bool
	Total bool // Count is of all that ever were, not of those that are kept
	Bare  bool // nobody counts them
}

func (h *handler) runs(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	q.Group = ""
	given := r.URL.Query()
	did := done(given)
	for _, name := range []string{"did", "n", "left", "more"} {
		if did != "" {
			given.Del(name)
		}
	}
	if q.encode() != given.Encode() {
		http.Redirect(w, r, q.url("/runs"), http.StatusSeeOther)
		return
	}
	p, err := h.lookAtRuns(r.Context(), q, time.Now())
	if err != nil && q.After != "" && statusOf(err) == http.StatusInternalServerError {
		q.After = "" // of another list, or of another time
		http.Redirect(w, r, q.url("/runs"), http.StatusSeeOther)
		return
	}
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	p.data.Flash = did
	h.show(w, r, http.StatusOK, "runs", p.data)
}

func (h *handler) liveRuns(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	h.stream(w, r, "", func(ctx context.Context, now time.Time) (part, error) { return h.lookAtRuns(ctx, q, now) })
}

func (h *handler) lookAtRuns(ctx context.Context, q query, now time.Time) (part, error) {
	// The figures come first: if they say that the list is not behind, it is not.
	t, err := h.totals(ctx, q.Internal)
	if err != nil {
		return part{}, err
	}
	rows, list, err := h.list(ctx, q.filter())
	if err != nil {
		return part{}, err
	}
	b := runsBody{Query: q, Totals: t, Chips: t.chips(q), Workflows: h.workflows(t, q), Rows: rows, Behind: list.Behind, Silent: silence(t.Stats.Silent, list.Silent)}
	b.Bulk = bulkOffers(q)
	if !q.Internal && q.Workflow == "" && t.Others {
		more := q
		more.Internal, more.After = true, ""
		b.Hidden = &link{URL: more.url("/runs")}
	}
	if q.After != "" {
		first := q
		first.After = ""
		b.First = first.url("/runs")
	}
	if list.Next != "" {
		more := q
		more.After = list.Next
		b.More = more.url("/runs")
	}
	return part{
		template: "runs-live", behind: t.Stats.Behind > 0 || list.Behind > 0,
		data: page{Title: "Runs", Place: "runs", Live: q.url("/live/runs"), Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

// silence says which shards did not answer, of those that were asked twice.
func silence(first, second []int) string {
	all := slices.Concat(first, second)
	slices.Sort(all)
	return api.Silent(slices.Compact(all))
}

// list returns runs as rows.
func (h *handler) list(ctx context.Context, f engine.Filter) ([]row, engine.Page, error) {
	soon, cancel := h.soon(ctx)
	defer cancel()
	list, err := h.Engine.List(soon, f)
	if err != nil {
		return nil, list, err
	}
	rows := make([]row, len(list.Runs))
	for i := range list.Runs {
		info := h.clean(&list.Runs[i])
		rows[i] = row{Info: *info, URL: runURL(info.ID), By: h.setter(ctx, info)}
	}
	return rows, list, nil
}

// setters remembers who set the waits of runs, which lists do not say.
type setters struct {
	mu    sync.Mutex
	known map[string]setter
}

type setter struct {
	until time.Time
	by    string
}

// setter returns who set the wait that a run is in.
func (h *handler) setter(ctx context.Context, i *engine.Info) string {
	if i.Next == nil || i.State == "scheduled" {
		return ""
	}
	h.setters.mu.Lock()
	s, ok := h.setters.known[i.ID]
	h.setters.mu.Unlock()
	if ok && s.until.Equal(*i.Next) {
		return s.by
	}
	soon, cancel := h.soon(ctx)
	defer cancel()
	full, err := h.Engine.Get(soon, i.ID)
	if err != nil {
		return ""
	}
	s = setter{*i.Next, setBy(full)}
	h.setters.mu.Lock()
	defer h.setters.mu.Unlock()
	if h.setters.known == nil || len(h.setters.known) > 4096 {
		h.setters.known = map[string]setter{}
	}
	h.setters.known[i.ID] = s
	return s.by
}

// setBy returns who set the wait that ends first.
func setBy(i *engine.Info) (by string) {
	var first *time.Time
	for k := range i.Steps {
		s := &i.Steps[k]
		if n := len(s.Attempts); s.Next != nil && (first == nil || s.Next.Before(*first)) {
			first, by = s.Next, ""
			if n > 0 && s.Attempts[n-1].Wait != nil {
				by = s.Attempts[n-1].Wait.By
			}
		}
	}
	return by
}
