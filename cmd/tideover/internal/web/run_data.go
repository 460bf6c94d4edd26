package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// runData reads runs for pages, without their secrets.
type runData struct {
	control *admin.Service
	redact  redactor
	feed    *feed
	sources waitSources
	actor   string // name in the history of a run, of a user who has none
}

func newRunData(c *admin.Service, redact redactor) *runData {
	d := &runData{control: c, redact: redact, feed: newFeed(c.Runs), actor: "page"}
	if redact == nil {
		d.redact = func(s string) string { return s }
	}
	return d
}

// hasEngine reports whether the server has an engine, and not only providers.
func (h *runData) hasEngine() bool { return h.control.Runs != nil }

// clustered reports whether the engine shares its work with other processes.
func (h *runData) clustered() bool { return h.control.System.Clustered() }

// get returns a run without its secrets.
func (h *runData) get(ctx context.Context, id string) (*engine.Info, error) {
	i, err := h.control.Runs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return h.redact.run(i), nil
}

// actorOf returns the name of the user who sends a request, for the history of runs.
func (h *runData) actorOf(r *http.Request) string {
	if caller := httpserver.CallerOf(r.Context()); caller.IsUser {
		return caller.Name
	}
	return h.actor
}

// totals has the numbers of runs.
type totals struct {
	Stats     engine.Stats
	States    map[string]int // runs that have not ended, and dead runs, by state
	Succeeded int            // since the log began
	Canceled  int            // since the log began
	Last      engine.Event   // the last event; Seq is 0 if there was none
	LastURL   string         // URL of the run of that event
	Idle      bool           // no run is running, waiting or queued
	Others    bool           // there are runs of internal workflows
	Unsent    int            // messages that could not be sent
}

// totals counts the runs, with those of internal workflows if internal is true.
func (h *runData) totals(ctx context.Context, internal bool) (totals, error) {
	ctx, cancel := h.soon(ctx)
	defer cancel()
	s, err := h.control.Runs.Stats(ctx)
	if err != nil {
		return totals{}, err
	}
	for i := range s.Troubles {
		s.Troubles[i].Error = h.redact(s.Troubles[i].Error)
	}
	for i := range s.Warnings {
		s.Warnings[i].Error = h.redact(s.Warnings[i].Error)
	}
	t := totals{Stats: s, States: map[string]int{}, Last: h.feed.latest()}
	for _, w := range s.Workflows {
		if control.Message(w.Name) {
			t.Unsent += w.States["dead"]
		}
		t.Others = t.Others || control.Internal(w.Name)
		if control.Internal(w.Name) && !internal {
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

// pauses returns the pauses of workflows by name, as far as the shards answer.
func (t *totals) pauses() map[string]engine.PausedWorkflow {
	paused := map[string]engine.PausedWorkflow{}
	for _, w := range t.Stats.Workflows {
		if w.Paused != nil {
			paused[w.Name] = *w.Paused
		}
	}
	return paused
}

// stateCounts has the numbers of the runs that match a query, by state, whatever states it names.
type stateCounts struct {
	of   map[string]int
	ever bool // includes runs that were deleted; replaced runs count as succeeded or canceled
	more bool // only the newest runs are counted
}

// text returns the number of the runs in a state; "" if they are not counted.
func (n stateCounts) text(state string) string {
	switch {
	case n.ever && state == "replaced":
		return ""
	case n.more:
		return strconv.Itoa(n.of[state]) + "+"
	}
	return strconv.Itoa(n.of[state])
}

// sum returns the number of the runs in some states.
func (n stateCounts) sum(states []string) (all int) {
	for _, s := range states {
		all += n.of[s]
	}
	return all
}

// countedRows is how many runs a page counts one by one.
const countedRows = 1000

// countStates counts the runs that match a query, whatever its states. It uses the counters of the
// engine if they have the conditions of the query.
func (h *runData) countStates(ctx context.Context, t *totals, q query) (stateCounts, error) {
	if !q.selects() {
		return t.byState(q), nil
	}
	f := q.filter()
	f.States, f.After, f.Limit, f.Order = nil, "", countedRows, orders[0]
	soon, cancel := h.soon(ctx)
	defer cancel()
	list, err := h.control.Runs.List(soon, f)
	n := stateCounts{of: map[string]int{}, more: list.Next != ""}
	for i := range list.Runs {
		n.of[list.Runs[i].State]++
	}
	return n, err
}

// byState counts the runs of the query's workflow by state; those of all workflows if it names none.
func (t *totals) byState(q query) stateCounts {
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
	return stateCounts{of: count, ever: true}
}

// workflows returns the names of all workflows that have runs or are defined, and the name in the
// query.
func (h *runData) workflows(t totals, q query) []string {
	var names []string
	for _, w := range t.Stats.Workflows {
		names = append(names, w.Name)
	}
	for _, w := range h.control.Workflows.All() {
		names = append(names, w.Name())
	}
	if q.Workflow != "" {
		names = append(names, q.Workflow)
	}
	names = slices.DeleteFunc(names, q.leaves)
	slices.Sort(names)
	return slices.Compact(names)
}

// listTimeout is how long a page waits for members of the cluster. The runs of members that do not
// answer in time are missing on the page.
const listTimeout = 2 * time.Second

// soon returns the context for a call that may ask other members of a cluster. In a cluster, it
// ends after listTimeout.
func (h *runData) soon(ctx context.Context) (context.Context, context.CancelFunc) {
	if !h.clustered() {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, listTimeout)
}

// countTimeout is how long a page that is not about runs waits for the number of dead runs.
const countTimeout = time.Second

// deadCount returns the number of dead runs for the navigation, or 0 if it is unknown: pages that
// are not about runs work without it.
func (h *runData) deadCount(ctx context.Context) int {
	if !h.hasEngine() {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	t, err := h.totals(ctx, false)
	if err != nil {
		return 0
	}
	return t.States["dead"]
}

// runURL returns the URL of a run. URLs are built in Go, never in a template.
func runURL(id string) string { return "/runs/" + url.PathEscape(id) }
