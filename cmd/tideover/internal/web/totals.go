package web

import (
	"context"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/engine"
)

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
	for i := range s.Warnings {
		s.Warnings[i].Error = h.Redact(s.Warnings[i].Error)
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
