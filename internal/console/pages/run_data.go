package pages

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// Data reads runs for pages, without their secrets.
type Data struct {
	control   *control.Engine
	Redact    Redactor
	feed      *feed
	sources   waitSources
	clustered bool
	outputs   func(*engine.Info) FindOutput
}

func newData(o *Options) *Data {
	return &Data{control: o.Control, Redact: o.Redact, feed: newFeed(o.Control.Runs), clustered: o.Clustered, outputs: o.Outputs}
}

// HasEngine reports whether there are pages about runs.
func (h *Data) HasEngine() bool { return h.control.Runs != nil }

// Clustered reports whether the engine shares its work with other processes.
func (h *Data) Clustered() bool { return h.clustered }

// Get returns a run without its secrets.
func (h *Data) Get(ctx context.Context, id string) (*engine.Info, error) {
	i, err := h.control.Runs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return h.Redact.run(i), nil
}

type callerKey struct{}

// CallerOf returns the sender of the request that has the context.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// ActorOf returns the name of the user who sends a request, for the history of runs.
func ActorOf(r *http.Request) string {
	if c := CallerOf(r.Context()); c.IsUser {
		return c.Name
	}
	return unnamed
}

// unnamed is the name in the history of runs of a sender who is not a user.
const unnamed = "page"

// Totals has the numbers of runs.
type Totals struct {
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

// Totals counts the runs, with those of internal workflows if internal is true.
func (h *Data) Totals(ctx context.Context, internal bool) (Totals, error) {
	ctx, cancel := h.Soon(ctx)
	defer cancel()
	s, err := h.control.Runs.Stats(ctx)
	if err != nil {
		return Totals{}, err
	}
	for i := range s.Troubles {
		s.Troubles[i].Error = h.Redact(s.Troubles[i].Error)
	}
	for i := range s.Warnings {
		s.Warnings[i].Error = h.Redact(s.Warnings[i].Error)
	}
	t := Totals{Stats: s, States: map[string]int{}, Last: h.feed.latest()}
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
		t.LastURL = RunURL(t.Last.Run)
	}
	t.Idle = t.States["running"]+t.States["waiting"]+t.States["queued"] == 0
	return t, nil
}

// pauses returns the pauses of workflows by name, as far as the shards answer.
func (t *Totals) pauses() map[string]engine.PausedWorkflow {
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
	of     map[string]int
	asking int  // runs that ask a question
	ever   bool // includes runs that were deleted; replaced runs count as succeeded or canceled
	more   bool // only the newest runs are counted
}

// text returns the number of the runs in a state; "" if they are not counted.
func (n stateCounts) text(state string) string {
	if n.ever && state == engine.StateReplaced {
		return ""
	}
	return n.number(n.of[state])
}

// none reports whether no run is in a state.
func (n stateCounts) none(state string) bool {
	if n.ever && state == engine.StateReplaced {
		return n.of[engine.StateSucceeded]+n.of[engine.StateCanceled] == 0
	}
	return n.of[state] == 0
}

// number returns a number of runs, with a plus sign if there may be more.
func (n stateCounts) number(runs int) string {
	if n.more {
		return strconv.Itoa(runs) + "+"
	}
	return strconv.Itoa(runs)
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
func (h *Data) countStates(ctx context.Context, t *Totals, q Query) (stateCounts, error) {
	f := q.Filter()
	f.States, f.After, f.Limit, f.Order = nil, "", countedRows, Newest
	n := stateCounts{of: map[string]int{}}
	if !q.selects() {
		n, f.Asking = t.byState(q), true
	}
	soon, cancel := h.Soon(ctx)
	defer cancel()
	list, err := h.control.Runs.List(soon, f)
	for i := range list.Runs {
		if list.Runs[i].Asking {
			n.asking++
		}
		if !n.ever {
			n.of[list.Runs[i].State]++
		}
	}
	n.more = list.Next != "" && !n.ever
	return n, err
}

// byState counts the runs of the query's workflow by state; those of all workflows if it names none.
func (t *Totals) byState(q Query) stateCounts {
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
func (h *Data) workflows(t Totals, q Query) []string {
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

// Soon returns the context for a call that may ask other members of a cluster. In a cluster, it
// ends after listTimeout.
func (h *Data) Soon(ctx context.Context) (context.Context, context.CancelFunc) {
	if !h.Clustered() {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, listTimeout)
}

// countTimeout is how long a page that is not about runs waits for the number of dead runs.
const countTimeout = time.Second

// DeadCount returns the number of dead runs for the navigation, or 0 if it is unknown: pages that
// are not about runs work without it.
func (h *Data) DeadCount(ctx context.Context) int {
	if !h.HasEngine() {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	t, err := h.Totals(ctx, false)
	if err != nil {
		return 0
	}
	return t.States["dead"]
}

// RunURL returns the URL of a run. URLs are built in Go, never in a template.
func RunURL(id string) string { return "/runs/" + url.PathEscape(id) }
