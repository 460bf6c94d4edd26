package web

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
)

// runData reads runs for pages, without their secrets.
type runData struct {
	control *control.Service
	redact  redactor
	feed    *feed
	sources waitSources
}

func newRunData(o Options) *runData {
	d := &runData{control: o.Control, redact: o.Redact, feed: newFeed(o.Control.Runs)}
	if o.Redact == nil {
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
	s, err := h.control.System.Stats(ctx)
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

// byState counts the runs of the query's workflow by state; those of all workflows if it names none.
func (t *totals) byState(q query) map[string]int {
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
	return count
}

// chips returns a link for each state, with the number of runs of the query's workflow.
func (t *totals) chips(q query) []chip {
	count := t.byState(q)
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
			State: s, Label: strings.ReplaceAll(s, "-", " "), Count: count[s], URL: q.url("/runs"),
			On: slices.Contains(on, s), Total: s == "succeeded" || s == "canceled", Bare: s == "replaced",
		})
	}
	return append(chips, chip{State: "asking", Label: "asks", URL: asking.url("/runs"), On: q.Asking, Bare: true})
}

// workflows returns the names of all workflows that have runs or are defined, and the name in the
// query.
func (h *runData) workflows(t totals, q query) []string {
	var names []string
	for _, w := range t.Stats.Workflows {
		names = append(names, w.Name)
	}
	for _, w := range h.control.Runs.Definitions() {
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

// list returns the runs that match a filter as rows of a table.
func (h *runData) list(ctx context.Context, f control.Filter) ([]row, engine.Page, error) {
	soon, cancel := h.soon(ctx)
	defer cancel()
	list, err := h.control.Runs.List(soon, f)
	if err != nil {
		return nil, list, err
	}
	rows := make([]row, len(list.Runs))
	for i := range list.Runs {
		info := h.redact.run(&list.Runs[i])
		rows[i] = row{Info: *info, URL: runURL(info.ID), By: h.waitSource(ctx, info), TagLinks: tagLinks(info)}
	}
	return rows, list, nil
}

// waitSources caches the sources of the current waits of runs, which lists do not contain.
type waitSources struct {
	mu    sync.Mutex
	known map[string]waitSource
}

type waitSource struct {
	until time.Time
	by    string
}

// waitSource returns the source that set the current wait of a run; "" if unknown.
func (h *runData) waitSource(ctx context.Context, i *engine.Info) string {
	if i.Next == nil || i.State == "scheduled" {
		return ""
	}
	h.sources.mu.Lock()
	s, ok := h.sources.known[i.ID]
	h.sources.mu.Unlock()
	if ok && s.until.Equal(*i.Next) {
		return s.by
	}
	soon, cancel := h.soon(ctx)
	defer cancel()
	full, err := h.control.Runs.Get(soon, i.ID)
	if err != nil {
		return ""
	}
	s = waitSource{*i.Next, setBy(full)}
	h.sources.mu.Lock()
	defer h.sources.mu.Unlock()
	if h.sources.known == nil || len(h.sources.known) > 4096 {
		h.sources.known = map[string]waitSource{}
	}
	h.sources.known[i.ID] = s
	return s.by
}

// setBy returns the source that set the current wait of the run. If several steps wait, it is the
// wait that ends first.
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

// groups returns the groups of dead runs. It does not remove secrets from their errors.
func (h *runData) groups(ctx context.Context, internal bool) ([]group, error) {
	ctx, cancel := h.soon(ctx)
	defer cancel()
	dead, err := h.control.Runs.DeadGroups(ctx, control.DeadQuery{Limit: shownGroups, Internal: internal})
	if err != nil {
		return nil, err
	}
	groups := make([]group, len(dead.Groups))
	for i := range dead.Groups {
		g := dead.Groups[i]
		key := groupKey(&g)
		q := query{Group: key, Internal: internal, Order: orders[0]}
		groups[i] = group{Group: g, Key: key, URL: q.url("/dead"), Retry: q.url("/dead/retry"), Drop: q.url("/bulk/cancel")}
		if !control.Internal(g.Workflow) {
			groups[i].Latest = q.url("/bulk/latest")
		}
	}
	return groups, nil
}

// groupOf returns the group with a key.
func (h *runData) groupOf(ctx context.Context, key string) (*group, error) {
	for _, internal := range []bool{false, true} {
		groups, err := h.groups(ctx, internal)
		if err != nil {
			return nil, err
		}
		if g := findGroup(groups, key); g != nil {
			return g, nil
		}
	}
	return nil, errNoGroup
}
