package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
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
	Hidden    *link  // to the list with the runs that are left out
	First     string // address of the first page; "" if this is it
	More      string // address of the next page
	Behind    int    // runs that the search does not know yet
	Silent    string // which shards did not answer
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
	if q.encode() != r.URL.Query().Encode() {
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

// totals is how many runs there are.
type totals struct {
	Stats     engine.Stats
	States    map[string]int // runs that are not finished, and dead ones
	Succeeded int            // since the log began
	Canceled  int
	Last      engine.Event // Seq is 0 if there was none
	LastURL   string
	Idle      bool
	Others    bool // there are runs that tideover has started on its own account
	Unsent    int  // messages that could not be sent
}

// totals counts the runs of users, or all.
func (h *handler) totals(ctx context.Context, internal bool) (totals, error) {
	ctx, cancel := h.soon(ctx)
	defer cancel()
	s, err := h.Engine.Stats(ctx)
	if err != nil {
		return totals{}, err
	}
	for i := range s.Troubles {
		s.Troubles[i].Error = h.Redact(s.Troubles[i].Error)
	}
	t := totals{Stats: s, States: map[string]int{}, Last: h.feed.latest()}
	for _, w := range s.Workflows {
		if api.Message(w.Name) {
			t.Unsent += w.States["dead"]
		}
		t.Others = t.Others || api.Internal(w.Name)
		if api.Internal(w.Name) && !internal {
			continue
		}
		for state, n := range w.States {
			t.States[state] += n
		}
		t.Succeeded += int(w.Totals.Succeeded)
		t.Canceled += int(w.Totals.Canceled)
	}
	if t.Last.Run != "" {
		t.LastURL = runURL(t.Last.Run)
	}
	t.Idle = t.States["running"]+t.States["waiting"]+t.States["queued"] == 0
	return t, nil
}

// chips returns the states to filter by, with counts for the query's workflow.
func (t *totals) chips(q query) []chip {
	count := map[string]int{}
	for _, w := range t.Stats.Workflows {
		if (q.Workflow == "" || q.Workflow == w.Name) && !q.leaves(w.Name) {
			for state, n := range w.States {
				count[state] += n
			}
			count["succeeded"] += int(w.Totals.Succeeded)
			count["canceled"] += int(w.Totals.Canceled)
		}
	}
	q.After = ""
	on := q.States
	all := q
	all.States = nil
	chips := []chip{{Label: "all", URL: all.url("/runs"), On: len(on) == 0}}
	for _, s := range states {
		q.States = []string{s}
		chips = append(chips, chip{
			State: s, Label: strings.ReplaceAll(s, "-", " "), Count: count[s], URL: q.url("/runs"),
			On: slices.Contains(on, s), Total: s == "succeeded" || s == "canceled", Bare: s == "replaced",
		})
	}
	return chips
}

// workflows returns the names of all workflows: those that have runs, those that
// new runs follow, and the one that is asked for.
func (h *handler) workflows(t totals, q query) []string {
	var names []string
	for _, w := range t.Stats.Workflows {
		names = append(names, w.Name)
	}
	for _, w := range h.Engine.Workflows() {
		names = append(names, w.Name())
	}
	if q.Workflow != "" {
		names = append(names, q.Workflow)
	}
	names = slices.DeleteFunc(names, q.leaves)
	slices.Sort(names)
	return slices.Compact(names)
}
